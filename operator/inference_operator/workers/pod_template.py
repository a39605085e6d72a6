"""What is added to worker pods: the class's template, the model's and the job's, merged by one table of fields.

Every field may stand in each of the three. A later template wins where two say something of the same thing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import reduce
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from inference_operator.accelerators import AcceleratorClass
from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.pod_parts import Container, HostAlias, RunAs, VolumeMount
from inference_operator.api.template import PodTemplate
from inference_operator.runtime.memo import by_identity
from inference_operator.state.objects import Model

T = TypeVar("T")
Merge = Callable[[Any, Any], Any]

NOTHING = PodTemplate()
_TEMPLATE: TypeAdapter[PodTemplate] = TypeAdapter(PodTemplate)


def _last(earlier: T | None, later: T | None) -> T | None:
    return earlier if later is None else later


def _by_key(earlier: Mapping[str, str], later: Mapping[str, str]) -> dict[str, str]:
    return {**earlier, **later}


def _by(key: Callable[[Any], str]) -> Merge:
    """Entries of the later list in the place of those with the same key, and then the rest of it."""

    def merge(earlier: Iterable[T], later: Iterable[T]) -> list[T]:
        return list({key(one): one for one in (*earlier, *later)}.values())

    return merge


def _each(earlier: Iterable[T], later: Iterable[T]) -> list[T]:
    found: list[T] = []
    for one in (*earlier, *later):
        if one not in found:
            found.append(one)
    return found


def _by_id(earlier: RunAs | None, later: RunAs | None) -> RunAs | None:
    if earlier is None or later is None:
        return later or earlier
    said = {f.name: value for f in fields(later) if (value := getattr(later, f.name)) not in (None, [])}
    return replace(earlier, **said)


def _name(one: Any) -> str:
    return str(one.name)


def _path(one: VolumeMount) -> str:
    return one.mount_path


def _address(one: HostAlias) -> str:
    return one.ip


# How two templates become one, field by field; which of it a cluster allows says template_rules.py.
FIELDS: dict[str, Merge] = {
    "labels": _by_key,
    "annotations": _by_key,
    "env": _by(_name),
    "env_from": _each,
    "volumes": _by(_name),
    "volume_mounts": _by(_path),
    "init_containers": _by(_name),
    "sidecars": _by(_name),
    "service_account_name": _last,
    "image_pull_secrets": _each,
    "security_context": _by_id,
    "host_aliases": _by(_address),
    "priority_class_name": _last,
    "runtime_class_name": _last,
}


def merged(*templates: PodTemplate | None) -> PodTemplate | None:
    """Return one template of several, where each goes before those that stand left of it; None for none."""
    given = [one for one in templates if one is not None]
    return reduce(_merge, given) if given else None


def _merge(earlier: PodTemplate, later: PodTemplate) -> PodTemplate:
    return PodTemplate(**{name: merge(getattr(earlier, name), getattr(later, name)) for name, merge in FIELDS.items()})


def with_model(spec: InferenceJobSpec, model: Model | None) -> InferenceJobSpec:
    """Return a job's spec with what its model adds to pods. It is the same one where the model adds nothing."""
    of_model = model.spec.template if model is not None and model.spec is not None else None
    return spec if of_model is None else replace(spec, template=merged(of_model, spec.template))


def template_on(spec: InferenceJobSpec, accelerator: AcceleratorClass) -> PodTemplate:
    """Return what a job's pods on a class have in addition."""
    return merged(of_class(accelerator), spec.template) or NOTHING


@by_identity(64)
def of_class(accelerator: AcceleratorClass) -> PodTemplate | None:
    """Return the template of a class; None where it has none."""
    return _TEMPLATE.validate_python(accelerator.template) if accelerator.template else None


def unreadable(name: str, accelerator: AcceleratorClass) -> str | None:
    """Return why a class's template can't be read, with its place; None where it can."""
    known = {field.name for field in fields(PodTemplate)}
    unknown = [given for given in accelerator.template if _snake(given) not in known]
    if unknown:
        return f"accelerators.{name}.template: there is no field {unknown[0]!r}"
    try:
        of_class(accelerator)
    except ValidationError as error:
        first = error.errors()[0]
        return f"accelerators.{name}.template.{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def containers(template: PodTemplate) -> tuple[Container, ...]:
    """Return the containers beside the worker, in the order in which they start."""
    return (*template.sidecars, *template.init_containers)
