"""Which nodes should have a service's next model before its workers start, and how long these wait for that."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from inference_operator.api.conditions import ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.instants import shift
from inference_operator.settings import Settings
from inference_operator.state.node_caches import CacheState, NodeModel, Prefetch
from inference_protocol.messages import ModelSource, Storage
from inference_protocol.node_cache import WantedModel
from inference_protocol.uris import RemoteUri, UriError, parse_uri


@dataclass(frozen=True, slots=True)
class RollOut:
    """What caches do for a roll-out.

    `prefetch` is what nodes should have, None where they can't. No worker starts on a node of `waits` now; `recheck` is when the
    first of them has waited for long enough.
    """

    condition: UndatedCondition
    prefetch: Prefetch | None = None
    waits: frozenset[str] = frozenset()
    recheck: datetime | None = None


def roll_out(
    namespace: str,
    source: ModelSource,
    nodes: Iterable[str],
    caches: Mapping[str, Mapping[str, NodeModel]],
    settings: Settings,
    now: datetime,
) -> RollOut | None:
    """Return what caches do for a roll-out to a model on these nodes; None where none of them has a cache that prefetches.

    `caches` are how models of the namespace stand, by node and digest.
    """
    ours = frozenset(nodes) & caches.keys()
    if not settings.node_cache.prefetch or not ours:
        return None
    if (why := _why_not(source, settings)) is not None or source.digest is None:
        return RollOut(UndatedCondition(ConditionType.PREFETCHED, Truth.FALSE, Reason.NOT_PREFETCHED, why or ""))
    digest = source.digest
    limit = settings.node_cache.prefetch_seconds
    stands = {node: caches[node].get(digest) for node in sorted(ours)}
    due = {node: shift(one.since, limit) for node, one in stands.items() if one is not None and one.state is CacheState.FETCHING}
    # One of which nothing is known yet was asked for just now.
    waits = frozenset(node for node, one in stands.items() if one is None or (node in due and due[node] > now))
    prefetch = Prefetch(WantedModel(namespace, source), ours)
    return RollOut(_condition(stands, limit), prefetch, waits, min((due[node] for node in waits if node in due), default=None))


def _why_not(source: ModelSource, settings: Settings) -> str | None:
    """Why a model isn't prefetched, with what to do; None where it can be."""
    storage = source.storage or Storage()
    if source.digest is None:
        return "the model's digest is not known before it is fetched; set the version's digest to have it prefetched"
    if not _is_remote(source.uri):
        return "the model is on a volume, where workers read it"
    if storage.secret or storage.aws_role:
        return (
            "the model's store asks for credentials, which only its workers have; the first worker on a node brings it to the cache"
        )
    if not settings.fetch.allowed_hosts:
        return "caches prefetch from hosts that the administrator lists alone; have the setting fetch.allowedHosts list the model's"
    return None


def _is_remote(uri: str) -> bool:
    try:
        return isinstance(parse_uri(uri), RemoteUri)
    except UriError:
        return False


def _condition(stands: Mapping[str, NodeModel | None], limit: float) -> UndatedCondition:
    failed = [(node, one.message) for node, one in stands.items() if one is not None and one.state is CacheState.FAILED]
    cached = sum(one is not None and one.state is CacheState.CACHED for one in stands.values())
    count = f"{cached}/{len(stands)} nodes have the model in their cache"
    if failed:
        node, why = failed[0]
        text = f"{count}; node {node}: {why}; workers there fetch it themselves"
        return UndatedCondition(ConditionType.PREFETCHED, Truth.FALSE, Reason.PREFETCH_FAILED, text)
    if cached == len(stands):
        return UndatedCondition(ConditionType.PREFETCHED, Truth.TRUE, Reason.MODEL_CACHED, count)
    text = f"{count}; workers wait {limit:g} s at most for the others"
    return UndatedCondition(ConditionType.PREFETCHED, Truth.FALSE, Reason.PREFETCHING, text)


def orders(prefetches: Iterable[Prefetch], nodes: Iterable[str], *, most: int) -> dict[str, tuple[WantedModel, ...]]:
    """Return what each node should have, `most` models each: of each namespace in turn, so that none is left out for another."""
    wanted: dict[str, dict[str, list[WantedModel]]] = {node: {} for node in nodes}
    for prefetch in prefetches:
        for node in prefetch.nodes & wanted.keys():
            models = wanted[node].setdefault(prefetch.model.namespace, [])
            if prefetch.model not in models:
                models.append(prefetch.model)
    return {node: _in_turn(by_namespace.values())[:most] for node, by_namespace in wanted.items()}


def _in_turn(lists: Iterable[list[WantedModel]]) -> tuple[WantedModel, ...]:
    rows = [list(enumerate(models)) for models in lists]
    return tuple(model for _, model in sorted((item for row in rows for item in row), key=lambda item: item[0]))
