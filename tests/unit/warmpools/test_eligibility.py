"""Who may run on warm workers: a batch on the same file that asks for nothing which they have not."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from inference_operator.accelerators import AcceleratorClass
from inference_operator.api.conditions import Reason
from inference_operator.api.job import Backend, Input, Output
from inference_operator.api.model import AcceleratorResources, ModelVersion, Profile, WarmPoolStatus
from inference_operator.api.resources import Resources
from inference_operator.api.schema import rfc3339
from inference_operator.api.storage import SecretReference, Storage
from inference_operator.api.template import PodTemplate, Toleration
from inference_operator.scheduling.types import ColocatedModel, ModelMemory, Offer
from inference_operator.settings import Settings
from inference_operator.state.objects import Key, Model
from inference_operator.state.request import job_request, pool_request
from inference_operator.warmpools.eligibility import (
    colocated_model_of,
    offer_of,
    pool_config,
    pool_for,
    pool_of,
    resolve_pool,
    takes,
    task_order,
)
from inference_operator.workers.resolve import Refusal
from tests.builders import DIGEST, NOW, OTHER_DIGEST, SETTINGS, a_job, a_model, a_profile, a_version, observed, resolved_of
from tests.unit.accelerators import with_classes
from tests.unit.scheduling.support import in_seconds, wanted
from tests.unit.warmpools.pool_support import WITH_TRITON, a_pool_status, a_pooled_model, the_pool

MODEL = a_pooled_model()


def test_a_plain_batch_waits_for_its_models_pool() -> None:
    seen = observed(a_job(model="m", items=10), model=MODEL)
    placement_request = wanted(seen)

    assert pool_for(resolved_of(seen), SETTINGS) == MODEL.key
    assert placement_request is not None
    assert placement_request.pool == MODEL.key


FITS: dict[str, dict[str, Any]] = {
    "answers in place": {},
    "the largest batch": {"batch_size": 32},
    "the class of the pool": {"accelerator": "cpu"},
    "the backend of the workers": {"backend": Backend.ONNX},
    "reads and writes a claim of the pool": {"items": 10},
    "urgent, due and firm": {"priority": 7, "deadline_in": 60, "firm": True},
}


@pytest.mark.parametrize("why", FITS)
def test_who_may_run_on_a_warm_worker(why: str) -> None:
    assert takes(the_pool(MODEL), resolved_of(observed(a_job(**{"model": "m", **FITS[why]}), model=MODEL), WITH_TRITON))


def test_a_class_is_compared_by_its_name() -> None:
    """Names come from the API server, each as a string of its own."""
    settings = with_classes("cpu", "mig-1g")
    model = a_pooled_model(accelerator="mig-1g")
    job = a_job(model="m", accelerator=str(b"mig-1g", "ascii"))

    assert takes(the_pool(model, settings), resolved_of(observed(job, model=model), settings))


def test_a_warm_worker_never_falls_back_to_the_cpu() -> None:
    """A job that names the class may come to it, though the pool has any."""
    of_class = AcceleratorClass(
        execution_providers=("CUDAExecutionProvider", "CPUExecutionProvider"), resource_name="nvidia.com/gpu"
    )
    settings = Settings(accelerators={**with_classes("cpu").accelerators, "x": of_class})
    pool = the_pool(a_pooled_model(accelerator="auto"), settings)

    assert pool_config(pool.like, "x", number=1, settings=settings).providers == ("CUDAExecutionProvider",)


ELSEWHERE = Output(uri="pvc://other/out")
REFUSED: dict[str, dict[str, Any]] = {
    "a larger batch": {"batch_size": 33},
    "a node selector": {"node_selector": {"disk": "fast"}},
    "a toleration": {"tolerations": [Toleration(key="k")]},
    "resources": {"resources": Resources(requests={"cpu": "1"})},
    "a pod template": {"template": PodTemplate(labels={"team": "a"})},
    "another class": {"accelerator": "gpu"},
    "another backend": {"backend": Backend.TRITON},
    "reads a claim that the pool does not mount": {"input": Input(uri="pvc://other/in.npy"), "output": Output(uri="pvc://data/o")},
    "writes a claim that the pool does not mount": {"input": Input(uri="pvc://data/in.npy"), "output": ELSEWHERE},
    "an output that is written by a Secret": {
        "output": Output(uri="s3://answers/out", storage=Storage(secret_ref=SecretReference(name="answers")))
    },
    "serves": {"serve": True},
}


@pytest.mark.parametrize("why", REFUSED)
def test_who_gets_a_pod_of_its_own(why: str) -> None:
    job = a_job(**{"model": "m", **REFUSED[why]})

    resolved = resolved_of(observed(job, model=MODEL), WITH_TRITON)
    assert not takes(the_pool(MODEL), resolved)
    assert pool_for(resolved, SETTINGS) is None


@pytest.mark.parametrize(("backend", "taken"), [(Backend.TRITON, True), (Backend.ONNX, False), (Backend.AUTO, False)])
def test_a_pool_on_triton_takes_the_jobs_that_ask_for_triton(backend: Backend, taken: object) -> None:
    model = a_pooled_model(backend=Backend.TRITON)
    seen = observed(a_job(model="m", backend=backend), model=model)

    resolved = resolved_of(seen, WITH_TRITON)
    assert takes(the_pool(model), resolved) is taken
    assert (pool_for(resolved, WITH_TRITON) is not None) is taken
    assert pool_for(resolved, SETTINGS) is None


def test_a_claim_that_is_only_read_by_the_pool_is_not_written_to() -> None:
    model = a_pooled_model(a_version(uri="pvc://models/m.onnx"), claims=[])
    reads = a_job(model="m", input=Input(uri="pvc://models/in.npy"))
    writes = a_job(model="m", output=Output(uri="pvc://models/out"))

    assert the_pool(model).mounts == {"models": False}
    assert takes(the_pool(model), resolved_of(observed(reads, model=model), WITH_TRITON))
    assert not takes(the_pool(model), resolved_of(observed(writes, model=model), WITH_TRITON))


def test_a_claim_of_the_pool_is_written_to_though_the_model_lies_there() -> None:
    model = a_pooled_model(a_version(uri="pvc://models/m.onnx"), claims=["models"])

    assert takes(
        the_pool(model), resolved_of(observed(a_job(model="m", output=Output(uri="pvc://models/out")), model=model), WITH_TRITON)
    )


def test_another_version_gets_its_own_pod() -> None:
    model = a_pooled_model(a_version("1", digest=OTHER_DIGEST), a_version("2"))

    assert takes(the_pool(model), resolved_of(observed(a_job(model="m", model_version="2"), model=model), WITH_TRITON))
    assert takes(the_pool(model), resolved_of(observed(a_job(model="m"), model=model), WITH_TRITON))
    assert not takes(the_pool(model), resolved_of(observed(a_job(model="m", model_version="1"), model=model), WITH_TRITON))


def test_a_pool_on_any_class_takes_jobs_for_any_class() -> None:
    model = a_pooled_model(accelerator="auto")

    assert takes(the_pool(model), resolved_of(observed(a_job(model="m", accelerator="cpu"), model=model), WITH_TRITON))
    assert takes(the_pool(model), resolved_of(observed(a_job(model="m", gpu=1), model=model), WITH_TRITON))


FAULT = "ModelNotFound: no such file"
TOLD = {
    "no word yet": (None, True),
    "well": (WarmPoolStatus(workers=1, ready=1), True),
    "starting": (WarmPoolStatus(workers=1), True),
    "failing, but one answers": (a_pool_status(2, 1, FAULT), True),
    "waits for room": (a_pool_status(0, 0, "NoFreeCapacity: waits for room"), True),
    "failing": (a_pool_status(1, 0, FAULT), False),
}


@pytest.mark.parametrize("how", TOLD)
def test_a_job_does_not_wait_for_a_failing_pool(how: str) -> None:
    told, waits = TOLD[how]
    model = a_pooled_model(told=told)

    assert (pool_for(resolved_of(observed(a_job(model="m"), model=model)), SETTINGS) is not None) == waits


def test_a_model_without_a_pool_has_none() -> None:
    assert pool_of(a_model(), SETTINGS) is None
    assert pool_of(a_model(invalid="unreadable"), SETTINGS) is None
    assert pool_for(resolved_of(observed(a_job())), SETTINGS) is None


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (a_pooled_model(a_version(file_format="torchscript")), "backends.torchscript.image"),
        (a_pooled_model(backend=Backend.TRITON), "backends.triton.image"),
        (a_pooled_model(a_version(file_format="torchscript"), backend=Backend.TRITON), "back end triton takes onnx files"),
    ],
    ids=["no PyTorch", "no Triton", "not Triton's"],
)
def test_a_model_that_no_worker_can_hold_has_no_pool_and_it_is_told_why(model: Model, words: str) -> None:
    refused = resolve_pool(model, SETTINGS)

    assert pool_of(model, SETTINGS) is None
    assert isinstance(refused, Refusal) and refused.reason is Reason.BACKEND_UNAVAILABLE and words in refused.message


def test_what_workers_are_made_of_is_their_revision_and_bounds_are_not() -> None:
    def revision(*versions: ModelVersion, **pool: Any) -> str:
        return the_pool(a_pooled_model(*versions, **pool)).revisions.combined

    cores = [AcceleratorResources(accelerator="cpu", resources=Resources(requests={"cpu": "2"}))]
    made_anew = {
        revision(batch_size=8),
        revision(accelerator="auto"),
        revision(claims=["data", "more"]),
        revision(a_version(digest=OTHER_DIGEST)),
        revision(resources=cores),
        revision(backend=Backend.TRITON),
    }

    assert len(made_anew) == 6
    assert revision(backend=Backend.ONNX) == revision()
    assert revision() not in made_anew
    assert revision(min=1, max=9, idle_seconds=7) == revision()
    assert revision(claims=["a", "data"]) == revision(claims=["data", "a"])


def test_a_pools_request_is_no_jobs() -> None:
    key = Key("team", "m")

    assert pool_request(key) != job_request(key)
    assert str(pool_request(key)) != str(job_request(key))


def test_an_order_says_what_the_jobs_own_pod_would_have_been_told() -> None:
    job = a_job("j", model="m", items=10, batch_size=8)
    resolved = resolved_of(observed(job, model=MODEL))
    told = task_order(resolved, attempt=3, accelerator="cpu", settings=SETTINGS)

    assert (told.namespace, told.job, told.uid, told.attempt) == ("default", "j", job.uid, 3)
    assert told.revision == resolved.revisions.combined
    assert (told.batch_size, told.model) == (8, the_pool(MODEL).like.source)
    assert (told.task.input_uri, told.task.output_uri) == ("pvc://data/in.npy", "pvc://data/out")


@pytest.mark.parametrize(("policy", "placed", "limit"), [("Firm", NOW, 600), ("Firm", None, None), ("Soft", NOW, None)])
def test_an_order_says_how_many_items_a_firm_deadline_allows(policy: str, placed: datetime | None, limit: int | None) -> None:
    model = replace(MODEL, status=replace(MODEL.status, profiles=[a_profile(items_per_second=10.0)]))
    resolved = resolved_of(observed(a_job("j", model="m", items=10, deadline_in=60, firm=policy == "Firm"), model=model))

    task = task_order(resolved, attempt=1, accelerator="cpu", placed=placed, settings=SETTINGS).task
    assert (task.items_limit, task.deadline) == (limit, rfc3339(in_seconds(60)) if limit is not None else "")


# Co-located models: jobs on warm workers of other models.

HOST = a_pooled_model(sharing="SameNamespace", batch_size=32)


def a_measured(
    model: Model, *, megabytes: int = 100, digest: str = DIGEST, backend: Backend = Backend.ONNX, on: str = "cpu", device: int = 0
) -> Model:
    profile = Profile(digest=digest, accelerator=on, backend=backend, batch_size=8, items_per_second=10, load_seconds=1,
                      memory_bytes=megabytes * 10**6, device_bytes=device * 10**6, observed_time=NOW)  # fmt: skip
    return replace(model, status=replace(model.status, profiles=[profile]))


OTHER = a_measured(a_model("n", a_version(digest=OTHER_DIGEST)), digest=OTHER_DIGEST, megabytes=200)


def test_a_measured_batch_may_be_a_colocated_model() -> None:
    colocated = colocated_model_of(resolved_of(observed(a_job(model="n", items=10, batch_size=8), model=OTHER)), SETTINGS)

    assert colocated == ColocatedModel("default", OTHER_DIGEST, 8, (("data", True),), (("cpu", ModelMemory(200_000_000)),))


IN_BUCKET = replace(
    a_version(uri="s3://models/m.onnx", digest=OTHER_DIGEST), storage=Storage(secret_ref=SecretReference(name="models"))
)
NO_COLOCATED: dict[str, tuple[dict[str, Any], Model]] = {
    "never measured": ({}, a_model("n", a_version(digest=OTHER_DIGEST))),
    "measured on another backend": ({}, a_measured(OTHER, digest=OTHER_DIGEST, backend=Backend.TRITON)),
    "a file that is not pinned": ({}, a_measured(a_model("n", a_version(digest=None)))),
    "another backend": ({"backend": Backend.TRITON}, OTHER),
    "another class than was measured": ({"accelerator": "gpu"}, OTHER),
    "a device whose memory was not": ({"accelerator": "gpu"}, a_measured(OTHER, digest=OTHER_DIGEST, on="gpu")),
    "a device, measured with smaller batches": (
        {"accelerator": "gpu", "batch_size": 9, "items": 10},
        a_measured(OTHER, digest=OTHER_DIGEST, on="gpu", device=500),
    ),
    "a node selector": ({"node_selector": {"disk": "fast"}}, OTHER),
    "serves": ({"serve": True}, OTHER),
    # Another model's workers are not shown the Secret.
    "a store that is asked with a Secret": ({}, a_measured(a_model("n", IN_BUCKET), digest=OTHER_DIGEST)),
}


@pytest.mark.parametrize("why", NO_COLOCATED)
def test_who_is_nobodys_colocated_model(why: str) -> None:
    spec, model = NO_COLOCATED[why]

    assert colocated_model_of(resolved_of(observed(a_job(model="n", **spec), model=model), WITH_TRITON), SETTINGS) is None


def test_a_batch_whose_device_memory_was_measured_may_be_a_colocated_model_there() -> None:
    model = a_measured(OTHER, digest=OTHER_DIGEST, megabytes=200, on="gpu", device=500)
    seen = observed(a_job(model="n", items=10, batch_size=8, accelerator="gpu"), model=model)
    colocated = colocated_model_of(resolved_of(seen), SETTINGS)

    assert colocated is not None and colocated.memory == (("gpu", ModelMemory(200_000_000, 500_000_000)),)
    told = task_order(resolved_of(seen), 1, "gpu", settings=SETTINGS)
    assert (told.memory_bytes, told.device_bytes) == (200_000_000, 500_000_000)


def test_a_host_offers_what_its_own_model_leaves() -> None:
    offer = offer_of(the_pool(a_measured(HOST, megabytes=112)), "cpu", 512_000_000)

    assert offer == Offer("default", 32, (("data", True),), ModelMemory(400_000_000))


def test_a_pool_on_triton_offers_nothing_though_its_own_model_was_measured() -> None:
    model = a_measured(a_pooled_model(sharing="SameNamespace", backend=Backend.TRITON), backend=Backend.TRITON)

    assert offer_of(the_pool(model), "cpu", 512_000_000) is None


@pytest.mark.parametrize("model", [a_measured(MODEL), HOST], ids=["wants none", "never measured"])
def test_who_offers_nothing(model: Model) -> None:
    assert offer_of(the_pool(model), "cpu", 512_000_000) is None
    assert offer_of(the_pool(a_measured(HOST)), "cpu", None) is None


OFFER = Offer("default", 32, (("data", True), ("models", False)), ModelMemory(200, 50))
COLOCATED = ColocatedModel("default", OTHER_DIGEST, 8, (("data", True),), (("cpu", ModelMemory(200, 50)),))


@pytest.mark.parametrize(
    ("changes", "taken"),
    [
        ({}, True),
        ({"memory": (("cpu", ModelMemory(201)),)}, False),
        ({"memory": (("cpu", ModelMemory(200, 51)),)}, False),
        ({"memory": (("gpu", ModelMemory(1)),)}, False),
        ({"namespace": "elsewhere"}, False),
        ({"batch_size": 33}, False),
        ({"claims": (("models", False),)}, True),
        ({"claims": (("models", True),)}, False),
        ({"claims": (("unknown", False),)}, False),
    ],
)
def test_what_a_host_takes(changes: dict[str, Any], taken: object) -> None:
    assert OFFER.takes(replace(COLOCATED, **changes), "cpu") is taken
