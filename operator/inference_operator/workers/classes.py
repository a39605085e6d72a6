"""Which accelerator classes a job may run on, and which execution providers compute it there."""

from inference_operator.accelerators import AUTO, CPU_PROVIDER, CUDA_PROVIDER, AcceleratorClass, ProviderSetting
from inference_operator.api.job import Backend, InferenceJobSpec
from inference_operator.settings import Settings

# Back ends beside ONNX Runtime compute on a device or on the CPU, and know ONNX Runtime's providers by these names alone.
_PLAIN = (CUDA_PROVIDER, CPU_PROVIDER)


def classes(spec: InferenceJobSpec, backend: Backend, settings: Settings) -> tuple[str, ...]:
    """Return the classes that a job may run on: the one that it names, or each that suits its back end and node selector."""
    if spec.accelerator != AUTO:
        return (spec.accelerator,)
    return tuple(name for name, of_class in settings.accelerators.items() if unsuitable(spec, backend, of_class) is None)


def unsuitable(spec: InferenceJobSpec, backend: Backend, of_class: AcceleratorClass) -> str | None:
    """Return why a job can't run on a class, whatever nodes there are; None where it can."""
    if not providers_of(of_class, spec.accelerator, backend):
        names = ", ".join(provider.name for provider in of_class.providers)
        return f"backend {backend.value} can't compute with {names}"
    for key, value in of_class.node_selector.items():
        if (asked := spec.node_selector.get(key, value)) != value:
            return f"it is on nodes with {key}={value}, and nodeSelector asks for {key}={asked}"
    return None


def providers_of(of_class: AcceleratorClass, asked: str, backend: Backend) -> tuple[ProviderSetting, ...]:
    """Return the providers of a class that a worker may compute with, in order of preference.

    A job that asks for a class by its name never falls back from a device to the CPU: one that asks for `auto` may.
    """
    first, *others = of_class.providers
    found = (first, *(p for p in others if p.name != CPU_PROVIDER or asked == AUTO))
    return found if backend is Backend.ONNX else tuple(p for p in found if p.name in _PLAIN)
