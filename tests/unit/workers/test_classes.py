"""What a job may run on, what computes it there, and what its pod has of its class."""

from typing import Any

import msgspec
import pytest

from inference_operator.accelerators import AcceleratorClass, ProviderSetting
from inference_operator.api.conditions import Reason
from inference_operator.api.job import Backend, InferenceJobSpec
from inference_operator.api.template import PodTemplate
from inference_operator.jobs.admission import admit
from inference_operator.settings import Backends, Settings, TorchScriptBackend, TritonBackend
from inference_operator.state.objects import Job
from inference_operator.template_limits import TemplateLimits
from inference_operator.workers.classes import classes, providers_of
from inference_operator.workers.resolve import Refusal
from inference_operator.workers.template_hash import Revisions
from tests.builders import MODEL_URI, NOW, a_job, a_model, a_version, observed, resolved_of
from tests.unit.accelerators import with_classes
from tests.unit.workers.test_pod import config_of, container_of, pod_of

TENSORRT, CUDA, CPU = "TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"
ONNX = Backend.ONNX
ALL = msgspec.structs.replace(
    with_classes("cpu", "gpu", "a100", "l4", "mig-1g", "gpu-shared", "cpu-avx512"),
    backends=Backends(triton=TritonBackend(image="triton"), torchscript=TorchScriptBackend(image="torch")),
)
NPU = AcceleratorClass(execution_providers=("OpenVINOExecutionProvider",), resource_name="npu.intel.com/accel")


def spec_of(**given: Any) -> InferenceJobSpec:
    return InferenceJobSpec(model=MODEL_URI, **given)


def refusal(job: Job, settings: Settings = ALL) -> Refusal | None:
    found = admit(observed(job), settings, NOW)
    return found if isinstance(found, Refusal) else None


def providers(*given: str, asked: str, backend: Backend = ONNX) -> tuple[str, ...]:
    of_class = AcceleratorClass(execution_providers=given, resource_name="nvidia.com/gpu")
    return tuple(provider.name for provider in providers_of(of_class, asked, backend))


def test_a_job_runs_on_the_class_that_it_names_and_auto_on_all() -> None:
    assert classes(spec_of(accelerator="mig-1g"), ONNX, ALL) == ("mig-1g",)
    assert classes(spec_of(), ONNX, ALL) == tuple(ALL.accelerators)


def test_a_class_that_is_not_defined_is_refused_with_those_that_are() -> None:
    found = refusal(a_job(accelerator="h100"))

    assert found is not None and (found.reason, found.final) == (Reason.ACCELERATOR_UNKNOWN, False)
    assert "'h100'; it has a100, cpu, cpu-avx512, gpu, gpu-shared, l4, mig-1g, and auto" in found.message


def test_auto_leaves_out_what_the_back_end_can_not_compute_with() -> None:
    settings = msgspec.structs.replace(ALL, accelerators={**with_classes("cpu", "gpu").accelerators, "npu": NPU})

    assert classes(spec_of(), ONNX, settings) == ("cpu", "gpu", "npu")
    assert classes(spec_of(), Backend.TORCHSCRIPT, settings) == ("cpu", "gpu")


def test_a_class_that_the_back_end_can_not_compute_with_is_refused() -> None:
    settings = msgspec.structs.replace(ALL, accelerators={**ALL.accelerators, "npu": NPU})
    found = refusal(a_job(accelerator="npu", backend=Backend.TRITON), settings)

    assert found is not None and found.reason is Reason.ACCELERATOR_UNSUITABLE
    assert "accelerator npu: backend triton can't compute with OpenVINOExecutionProvider" in found.message


def test_auto_leaves_out_classes_on_other_nodes_than_the_job_asks_for() -> None:
    asked = {"nvidia.com/gpu.product": "NVIDIA-L4"}

    assert set(classes(spec_of(node_selector=asked), ONNX, ALL)) == set(ALL.accelerators) - {"a100"}


def test_a_node_selector_that_contradicts_the_class_is_refused() -> None:
    """The job's label silently took the place of the class's, so the worker came to nodes that the class does not mean."""
    found = refusal(a_job(accelerator="a100", node_selector={"nvidia.com/gpu.product": "NVIDIA-L4"}))

    assert found is not None and (found.reason, found.final) == (Reason.ACCELERATOR_UNSUITABLE, False)
    assert "accelerator a100: it is on nodes with nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB" in found.message


def test_only_auto_falls_back_to_the_cpu() -> None:
    assert providers(TENSORRT, CUDA, CPU, asked="gpu") == (TENSORRT, CUDA)
    assert providers(TENSORRT, CUDA, CPU, asked="auto") == (TENSORRT, CUDA, CPU)
    assert providers(CPU, asked="gpu") == (CPU,), "a class of CPUs"


def test_other_back_ends_compute_with_what_they_know() -> None:
    assert providers(TENSORRT, CUDA, asked="gpu", backend=Backend.TORCHSCRIPT) == (CUDA,)
    assert providers(TENSORRT, asked="gpu", backend=Backend.TRITON) == ()


def test_a_worker_is_told_its_providers_in_order_with_their_options() -> None:
    config = config_of(pod_of(a_job(accelerator="l4"), accelerator="l4", settings=ALL))

    assert config.providers == (TENSORRT, CUDA)
    assert config.provider_options == {TENSORRT: {"trt_fp16_enable": "True", "trt_builder_optimization_level": "3"}}
    assert config.devices == 1


def test_an_option_reaches_the_worker_as_it_is_written() -> None:
    given = ProviderSetting(
        CUDA, {"gpu_mem_limit": 2**31, "arena_extend_strategy": "kSameAsRequested", "do_copy_in_default_stream": False}
    )
    settings = Settings(accelerators={"x": AcceleratorClass(execution_providers=(given,))})
    config = config_of(pod_of(a_job(accelerator="x"), accelerator="x", settings=settings))

    assert config.provider_options[CUDA] == {
        "gpu_mem_limit": "2147483648",
        "arena_extend_strategy": "kSameAsRequested",
        "do_copy_in_default_stream": "False",
    }


def test_the_pod_has_what_its_class_says() -> None:
    pod = pod_of(a_job(accelerator="l4", node_selector={"zone": "a"}), accelerator="l4", settings=ALL)
    spec, container = pod["spec"], container_of(pod)

    assert spec["nodeSelector"] == {"zone": "a", "nvidia.com/gpu.product": "NVIDIA-L4"}
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert container["image"] == "registry.example.com/inference-worker-tensorrt:0.1.0"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert pod["metadata"]["labels"]["inference.myorg/accelerator"] == "l4"


@pytest.mark.parametrize(("name", "resource"), [("mig-1g", "nvidia.com/mig-1g.10gb"), ("gpu-shared", "nvidia.com/gpu.shared")])
def test_a_slice_or_a_share_of_a_device_is_asked_for_by_its_own_name(name: str, resource: str) -> None:
    resources = container_of(pod_of(a_job(accelerator=name), accelerator=name, settings=ALL))["resources"]

    assert resources["limits"][resource] == resources["requests"][resource] == "1"
    assert "nvidia.com/gpu" not in resources["limits"]


def test_the_image_of_a_class_is_not_that_of_pytorch() -> None:
    job = a_job(model="m", accelerator="l4", serve=True)
    pod = pod_of(job, a_model("m", a_version(file_format="torchscript")), accelerator="l4", settings=ALL)

    assert container_of(pod)["image"] == "torch"


def test_a_pod_runs_by_the_runtime_of_its_class_unless_its_job_names_another() -> None:
    """Where NVIDIA's runtime is not the node's default, each job had to name it, and a warm worker could not."""
    of_class = msgspec.structs.replace(ALL.accelerators["l4"], runtime_class_name="nvidia")
    limits = TemplateLimits(runtime_classes=("kata",))
    settings = msgspec.structs.replace(ALL, accelerators={**ALL.accelerators, "l4": of_class}, pod_template=limits)

    def runtime(job: Job, settings: Settings) -> str | None:
        found: str | None = pod_of(job, accelerator="l4", settings=settings)["spec"].get("runtimeClassName")
        return found

    assert runtime(a_job(accelerator="l4"), settings) == "nvidia"
    assert runtime(a_job(accelerator="l4", template=PodTemplate(runtime_class_name="kata")), settings) == "kata"
    assert runtime(a_job(accelerator="l4"), ALL) is None


def revisions(settings: Settings, **changes: Any) -> Revisions:
    changed = msgspec.structs.replace(settings.accelerators["l4"], **changes)
    settings = msgspec.structs.replace(settings, accelerators={**settings.accelerators, "l4": changed})
    return resolved_of(observed(a_job(accelerator="l4", serve=True)), settings).revisions


CHANGES: dict[str, dict[str, Any]] = {
    "image": {"image": "another"},
    "options": {"execution_providers": (ProviderSetting(TENSORRT, {"trt_fp16_enable": False}), CUDA)},
    "providers": {"execution_providers": (CUDA,)},
    "node selector": {"node_selector": {}},
    "tolerations": {"tolerations": ()},
    "RuntimeClass": {"runtime_class_name": "nvidia"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_class_that_changes_rolls_its_services_out(change: str) -> None:
    assert revisions(ALL, **CHANGES[change]) != revisions(ALL)


def test_watts_of_a_class_roll_nothing_out() -> None:
    assert revisions(ALL, watts_busy=1.0) == revisions(ALL)


def test_a_worker_is_told_its_share_of_a_shared_device() -> None:
    def told(name: str) -> int | None:
        return config_of(pod_of(a_job(accelerator=name), accelerator=name, settings=ALL)).device_memory_bytes

    assert told("gpu-shared") == 8 << 30 and told("l4") is None
