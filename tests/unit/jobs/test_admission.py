"""Admission: each check finds its own fault, says what to do, and knows whether waiting could help."""

import pytest

from inference_operator.accelerators import AcceleratorClass
from inference_operator.api.conditions import Reason
from inference_operator.api.job import Backend, Input, Output
from inference_operator.api.job_status import InferenceJobStatus
from inference_operator.api.model import AcceleratorResources
from inference_operator.api.resources import Resources
from inference_operator.jobs.admission import admit
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Model
from inference_operator.workers.resolve import Refusal
from tests.builders import DIGEST, GPU, NOW, OTHER_DIGEST, SETTINGS, a_job, a_model, a_version, observed, resolved_of


def refused(job: Job, model: Model | None = None, settings: Settings = SETTINGS) -> Refusal | None:
    found = admit(observed(job, model=model), settings, NOW)
    return found if isinstance(found, Refusal) else None


def unreadable(job: Job) -> Job:
    return Job(
        job.key,
        job.uid,
        1,
        "1",
        job.created,
        deleting=False,
        spec=None,
        status=InferenceJobStatus(),
        invalid="model: Field required",
    )


CPU_ONLY = Settings(accelerators={"cpu": AcceleratorClass(execution_providers=("CPUExecutionProvider",))})
BAD_INPUT = Input(uri="pvc://data/../secrets")
OUTPUT = Output(uri="pvc://data/out")


FOR_GOOD, FOR_NOW = True, False
BAD = Reason.INVALID_SPEC
NO_BACKEND = Reason.BACKEND_UNAVAILABLE
TOO_LATE = Reason.DEADLINE_EXCEEDED
TORCH = a_version(file_format="torchscript")
STARTED = InferenceJobStatus(start_time=NOW)
CPU = "cpu"

FAULTS = {
    "the spec can't be read": (unreadable(a_job()), None, BAD, FOR_GOOD, "Field required"),
    "the input climbs": (a_job(input=BAD_INPUT, output=OUTPUT), None, BAD, FOR_GOOD, "'..'"),
    "the output climbs": (a_job(input=Input(uri="pvc://d/i"), output=Output(uri="pvc://d/../o")), None, BAD, FOR_GOOD, "'..'"),
    "the model climbs": (a_job(model="pvc://m/%2e%2e/x"), None, BAD, FOR_GOOD, "'..'"),
    "the model is at the metadata service": (a_job(model="http://169.254.169.254/m"), None, BAD, FOR_GOOD, "metadata"),
    "the output is no volume": (a_job(output=Output(uri="https://h/x")), None, BAD, FOR_GOOD, "s3://BUCKET/FOLDER or gs://BUCKET"),
    "the input is in a registry": (
        a_job(input=Input(uri="oci://r.example/i"), output=OUTPUT),
        None,
        BAD,
        FOR_GOOD,
        "s3://, gs://, hf:// and https://",
    ),
    "no such model": (a_job(model="m"), None, Reason.MODEL_UNKNOWN, FOR_NOW, "create it"),
    "the model can't be read": (
        a_job(model="m"),
        a_model(invalid="versions: none"),
        Reason.MODEL_UNKNOWN,
        FOR_NOW,
        "versions: none",
    ),
    "no such version": (a_job(model="m", model_version="9"), a_model(), Reason.MODEL_VERSION_UNKNOWN, FOR_NOW, "it has 1"),
    "two digests contradict": (a_job(model="m", model_digest=OTHER_DIGEST), a_model(), BAD, FOR_NOW, DIGEST),
    "no Triton yet": (a_job(backend=Backend.TRITON), None, NO_BACKEND, FOR_GOOD, "triton"),
    "no TorchScript yet": (a_job(backend=Backend.TORCHSCRIPT), None, NO_BACKEND, FOR_GOOD, "torchscript"),
    "no back end for the model's format": (a_job(model="m"), a_model("m", TORCH), NO_BACKEND, FOR_GOOD, "torchscript"),
    "more devices than a worker computes on": (
        a_job(gpu=1, resources=Resources(limits={GPU: "2"})),
        None,
        BAD,
        FOR_GOOD,
        "resources.limits asks for 2 nvidia.com/gpu, but a worker on accelerator gpu computes on 1; leave nvidia.com/gpu out",
    ),
    "more devices, in the requests alone": (
        a_job(gpu=1, resources=Resources(requests={GPU: "2"})),
        None,
        BAD,
        FOR_GOOD,
        "resources.requests asks for 2 nvidia.com/gpu",
    ),
    "a share of a device": (a_job(gpu=1, resources=Resources(limits={GPU: "0"})), None, BAD, FOR_GOOD, "set accelerator to cpu"),
    "a device on the CPU": (
        a_job(resources=Resources(limits={GPU: "1"}), accelerator=CPU),
        None,
        BAD,
        FOR_GOOD,
        "to gpu, or leave",
    ),
    "a device wherever": (
        a_job(resources=Resources(limits={GPU: "1"})),
        None,
        BAD,
        FOR_GOOD,
        "resources.limits asks for nvidia.com/gpu, and accelerator auto takes classes without it too; set accelerator to gpu, or leave",
    ),
    "a device of another vendor": (
        a_job(gpu=1, resources=Resources(limits={"amd.com/gpu": "1"})),
        None,
        BAD,
        FOR_GOOD,
        "add a class with resourceName amd.com/gpu to the chart's accelerators",
    ),
    "a slice of a device": (
        a_job(gpu=1, resources=Resources(limits={"nvidia.com/mig-1g.5gb": "1"})),
        None,
        BAD,
        FOR_GOOD,
        "mig-1g",
    ),
    "more devices by the model": (
        a_job(model="m", gpu=1),
        a_model(resources=[AcceleratorResources(accelerator="gpu", resources=Resources(limits={GPU: "4"}))]),
        BAD,
        FOR_NOW,
        "resources of InferenceModel 'm' for accelerator gpu, limits, asks for 4 nvidia.com/gpu",
    ),
    "more devices after the start": (
        a_job(gpu=1, resources=Resources(limits={GPU: "2"}), status=STARTED),
        None,
        BAD,
        FOR_NOW,
        "computes on 1",
    ),
    "the firm deadline has passed": (a_job(deadline_in=-1, firm=True), None, TOO_LATE, FOR_GOOD, "later deadline"),
    "the firm deadline is now": (a_job(deadline_in=0, firm=True), None, TOO_LATE, FOR_GOOD, "later deadline"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused_in_words(fault: str) -> None:
    job, model, reason, final, words = FAULTS[fault]
    found = refused(job, model)

    assert found is not None
    assert (found.reason, found.final) == (reason, final)
    assert words in found.message


def test_an_accelerator_that_the_operator_has_not_is_waited_for() -> None:
    found = refused(a_job(gpu=1), settings=CPU_ONLY)

    assert found is not None
    assert (found.reason, found.final) == (Reason.ACCELERATOR_UNKNOWN, False)
    assert "'gpu'" in found.message and "cpu" in found.message


ADMITTED = {
    "a model by its URI": (a_job(), None),
    "a model by its name": (a_job(model="m"), a_model()),
    "a version that exists": (a_job(model="m", model_version="1"), a_model()),
    "digests that agree": (a_job(model="m", model_digest=DIGEST), a_model()),
    "a digest of the job's own": (a_job(model="m", model_digest=DIGEST), a_model("m", a_version(digest=None))),
    "the back end that there is": (a_job(backend=Backend.ONNX), None),
    "a soft deadline that has passed": (a_job(deadline_in=-1), None),
    "a firm deadline to come": (a_job(deadline_in=1, firm=True), None),
    "a firm deadline that passed after the start": (a_job(deadline_in=-1, firm=True, status=STARTED), None),
    "a serving job": (a_job(serve=True), None),
    "the devices that the class brings": (a_job(gpu=1, resources=Resources(limits={GPU: "1"}, requests={GPU: "1000m"})), None),
    "no device where there is none": (a_job(accelerator=CPU, resources=Resources(limits={GPU: "0"})), None),
    "what is no device": (a_job(resources=Resources(limits={"example.com/licence": "1", "hugepages-2Mi": "4Mi"})), None),
}


@pytest.mark.parametrize("what", ADMITTED)
def test_what_may_run_is_not_refused(what: str) -> None:
    assert refused(*ADMITTED[what]) is None


def test_auto_runs_on_whatever_the_operator_has() -> None:
    assert refused(a_job(accelerator="auto"), settings=CPU_ONLY) is None


def test_the_first_fault_decides() -> None:
    found = refused(a_job(model="m", input=BAD_INPUT, output=OUTPUT, backend=Backend.TRITON))

    assert found is not None and found.reason is Reason.INVALID_SPEC


# Which file an admitted job runs.


def sourced(job: Job, model: Model | None = None) -> tuple[str, str, str | None]:
    found = resolved_of(observed(job, model=model)).source
    return found.name, found.version, found.digest


TWO = (a_version("1", digest=DIGEST), a_version("2", digest=OTHER_DIGEST))


def test_without_a_version_the_last_listed_runs() -> None:
    assert sourced(a_job(model="m"), a_model("m", *TWO)) == ("m", "2", OTHER_DIGEST)


def test_the_models_default_comes_before_the_last_listed() -> None:
    assert sourced(a_job(model="m"), a_model("m", *TWO, default_version="1")) == ("m", "1", DIGEST)


def test_the_jobs_version_comes_before_the_models_default() -> None:
    assert sourced(a_job(model="m", model_version="1"), a_model("m", *TWO, default_version="2")) == ("m", "1", DIGEST)


def test_a_uri_is_named_by_its_file() -> None:
    assert sourced(a_job(model="https://h/lane.detection.onnx", model_digest=DIGEST)) == ("lane.detection", "1", DIGEST)


def test_a_uri_without_a_file_has_a_name_too() -> None:
    assert sourced(a_job(model="pvc://claim/")) == ("model", "1", None)


# What slips through.


@pytest.mark.parametrize("uri", ["pvc://Not_A_Claim/m.onnx", "pvc://claim/%2e%2e/m.onnx"])
def test_an_unusable_uri_of_the_models_version_is_refused_in_words(uri: str) -> None:
    found = refused(a_job(model="m"), a_model("m", a_version(uri=uri)))

    assert found is not None


def test_a_malformed_address_is_refused_in_words() -> None:
    assert refused(a_job(input=Input(uri="http://[x/i.npy", digest=DIGEST), output=OUTPUT)) is not None
