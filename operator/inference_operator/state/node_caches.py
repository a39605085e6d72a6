"""What is known of the caches of models on nodes, and of pods that answer for their nodes."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from inference_protocol.node_cache import WantedModel


@dataclass(frozen=True, slots=True)
class NodeAgent:
    """A pod that answers for its node: an exporter of meters, or a cache."""

    node: str
    address: str


class CacheState(StrEnum):
    """How a model stands in a node's cache."""

    CACHED = "Cached"
    FETCHING = "Fetching"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class NodeModel:
    """A model that a node should have: how it stands there, why it failed, and since when the node should have it."""

    state: CacheState
    message: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Prefetch:
    """A model that nodes should have before a service's next workers start there."""

    model: WantedModel
    nodes: frozenset[str]
