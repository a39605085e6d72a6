"""A roll-out with caches on nodes: workers start where the cache has their model, and the status says how that stands."""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from inference_operator.api.conditions import Condition, Reason
from inference_operator.settings import Fetching, NodeCache, Settings
from inference_operator.state.node_caches import CacheState, NodeModel
from inference_operator.state.objects import Model
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import CreatePod
from tests.builders import DIGEST, NOW, SETTINGS, a_job, a_model, a_pod, a_version, observed
from tests.unit.jobs.situation import LOOKED, on
from tests.unit.scheduling.support import decide, status_of

CACHES = msgspec.structs.replace(
    SETTINGS,
    node_cache=NodeCache(enabled=True, prefetch=True, prefetch_seconds=60.0),
    fetch=Fetching(allowed_hosts=("models.example",)),
)
REMOTE = "https://models.example/net.onnx"
JOB = a_job(serve=True, replicas=1, model="m", status=LOOKED)
CACHED, FETCHING, FAILED = CacheState


def a_model_at(uri: str = REMOTE, digest: str | None = DIGEST) -> Model:
    return a_model("m", a_version(uri=uri, digest=digest))


def rolling(*known: tuple[str, NodeModel | None], model: Model | None = None) -> Observed:
    """A service with an old worker on node-1, and nodes that have a cache, with how the new model stands there."""
    caches = {node: {DIGEST: one} if one is not None else {} for node, one in known}
    return observed(JOB, a_pod(JOB, 1, revision="old"), model=model or a_model_at(), node_models=caches)


def stands(state: CacheState, *, ago: float = 1.0, why: str = "") -> NodeModel:
    return NodeModel(state, why, NOW - timedelta(seconds=ago))


def starts(seen: Observed, settings: Settings = CACHES) -> bool:
    return any(isinstance(action, CreatePod) for action in decide(seen, on("node-2"), settings=settings).actions)


def told(seen: Observed, settings: Settings = CACHES) -> Condition | None:
    status = status_of(decide(seen, on("node-2"), settings=settings), seen)
    return next((c for c in status.conditions if c.type == "Prefetched"), None)


def test_a_worker_waits_for_the_cache_of_its_node() -> None:
    assert not starts(rolling(("node-2", None)))
    assert not starts(rolling(("node-2", stands(FETCHING))))
    assert starts(rolling(("node-2", stands(CACHED))))


def test_it_waits_for_no_other_nodes_cache() -> None:
    seen = rolling(("node-1", stands(FETCHING)), ("node-2", stands(CACHED)))

    assert starts(seen)
    assert told(seen).reason == Reason.PREFETCHING  # type: ignore[union-attr]


def test_it_waits_no_longer_than_the_settings_say() -> None:
    waiting, tired = rolling(("node-2", stands(FETCHING, ago=59))), rolling(("node-2", stands(FETCHING, ago=60)))

    assert not starts(waiting) and starts(tired)
    assert decide(waiting, on("node-2"), settings=CACHES).recheck == NOW + timedelta(seconds=1)


def test_it_waits_for_no_cache_that_failed_and_says_why() -> None:
    seen = rolling(("node-2", stands(FAILED, why="its cache does not answer")))
    condition = told(seen)

    assert starts(seen)
    assert condition is not None and condition.reason == Reason.PREFETCH_FAILED and "does not answer" in condition.message


def test_nodes_of_old_and_new_workers_are_wanted_if_they_have_a_cache() -> None:
    plan = decide(rolling(("node-1", None), ("node-2", None), ("node-3", None)), on("node-2"), settings=CACHES)

    assert plan.prefetch is not None and plan.prefetch.nodes == {"node-1", "node-2"}
    assert plan.prefetch.model.source.uri == REMOTE and plan.prefetch.model.namespace == JOB.key.namespace


@pytest.mark.parametrize(
    ("model", "hosts", "why"),
    [
        (a_model_at(digest=None), ("models.example",), "digest is not known"),
        (a_model_at("pvc://data/net.onnx"), ("models.example",), "on a volume"),
        (a_model_at(), (), "fetch.allowedHosts"),
    ],
)
def test_what_is_not_prefetched_is_not_waited_for_and_says_why(model: Model, hosts: tuple[str, ...], why: str) -> None:
    settings = msgspec.structs.replace(CACHES, fetch=Fetching(allowed_hosts=hosts))
    seen = rolling(("node-2", None), model=model)
    condition = told(seen, settings)

    assert starts(seen, settings) and decide(seen, on("node-2"), settings=settings).prefetch is None
    assert condition is not None and condition.reason == Reason.NOT_PREFETCHED and why in condition.message


def test_without_caches_nothing_is_said_or_waited_for() -> None:
    off = msgspec.structs.replace(CACHES, node_cache=NodeCache(enabled=True, prefetch=False))
    for seen, settings in ((rolling(), CACHES), (rolling(("node-2", None)), off)):
        assert starts(seen, settings) and told(seen, settings) is None


def test_a_service_that_does_not_roll_out_waits_for_nothing() -> None:
    first = replace(rolling(("node-2", None)), pods=())

    assert starts(first) and told(first) is None
