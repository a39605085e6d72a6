"""What a new worker is told of its node's cache: a token for its own model, and for no other."""

from typing import Any

import msgspec
import pytest

from inference_operator.nodecache.grants import granted
from inference_operator.settings import NodeCache
from inference_operator.state.objects import Model
from inference_operator.workers.actions import CreatePod
from inference_protocol.node_cache import GRANT_VARIABLE, Grant, token
from tests.builders import DIGEST, a_job, a_model, a_version, observed
from tests.unit.jobs.situation import on
from tests.unit.scheduling.support import decide

KEY = b"k" * 32
SETTINGS = NodeCache(enabled=True, service="caches", namespace="system")


def a_worker(model: Model) -> dict[str, Any]:
    plan = decide(observed(a_job(serve=True, model="m"), model=model), on("node-1"))
    return next(action.manifest for action in plan.actions if isinstance(action, CreatePod))


def test_a_worker_gets_the_token_of_its_namespaces_model() -> None:
    pod = a_worker(a_model("m", a_version(uri="https://models.example/net.onnx")))
    made = granted(pod, KEY, SETTINGS)
    (variable,) = [each for each in made["spec"]["containers"][0]["env"] if each["name"] == GRANT_VARIABLE]
    grant = msgspec.json.decode(variable["value"], type=Grant)

    assert grant == Grant("http://caches.system.svc:8006", token(KEY, pod["metadata"]["namespace"], DIGEST))
    made["spec"]["containers"][0]["env"].remove(variable)
    assert made == pod, "and nothing else of the pod is another"


@pytest.mark.parametrize(
    "model", [a_version(uri="pvc://data/net.onnx"), a_version(uri="https://models.example/net.onnx", digest=None)]
)
def test_models_on_volumes_and_of_no_digest_have_no_token(model: Any) -> None:
    pod = a_worker(a_model("m", model))

    assert granted(pod, KEY, SETTINGS) == pod


def test_tokens_tell_namespaces_and_digests_apart() -> None:
    assert len({token(KEY, "a", "b"), token(KEY, "ab", ""), token(KEY, "b", "a"), token(b"other", "a", "b")}) == 4
