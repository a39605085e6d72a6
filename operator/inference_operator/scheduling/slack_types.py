"""What services let batches have of their workers, and what a batch asks of them."""

from dataclasses import dataclass

from inference_operator.accelerators import AUTO
from inference_operator.api.job import Backend
from inference_operator.state.objects import Key
from inference_protocol.messages import ModelSource


@dataclass(frozen=True, slots=True)
class SlackTask:
    """What a batch asks of a service's worker: that it has the model, and the claims, with whether the batch writes to them.

    `accelerator` is the class that its spec names, or auto. `barred` says why it runs in no slack at all; empty where it may.
    """

    namespace: str
    source: ModelSource
    backend: Backend
    batch_size: int
    claims: tuple[tuple[str, bool], ...]
    accelerator: str = AUTO
    barred: str = ""


@dataclass(frozen=True, slots=True)
class SlackWorker:
    """A service's worker that has no batch. `share` is the part of its time that one can count on."""

    service: Key
    pod: Key
    node: str
    accelerator: str
    share: float


@dataclass(frozen=True, slots=True)
class ServiceSlack:
    """What a service lets batches have, and the workers that are free for one. `closed` says why none may begin now."""

    service: Key
    source: ModelSource
    backend: Backend
    batch_size: int
    mounts: tuple[tuple[str, bool], ...]
    accelerator: str = AUTO
    workers: tuple[SlackWorker, ...] = ()
    closed: str = ""
