"""Whether a job keeps to what the cluster lets it add to worker pods."""

from collections.abc import Iterable, Iterator

from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.template import PodTemplate
from inference_operator.settings import Settings
from inference_operator.template_limits import USUAL_ENVIRONMENT, is_environment_allowed, is_key_allowed, matches


def template_fault(spec: InferenceJobSpec, settings: Settings) -> str | None:
    """Return the first part of `template` or `tolerations` that is not allowed, with what is; None where all is."""
    return next(_faults(spec, settings), None)


def _faults(spec: InferenceJobSpec, settings: Settings) -> Iterator[str]:
    template, limits = spec.template or PodTemplate(), settings.pod_template
    for variable in template.env:
        if not is_environment_allowed(variable.name, limits):
            yield _told(f"template.env sets {variable.name}", (*USUAL_ENVIRONMENT, *limits.environment), "environment")
    for part, given, allowed in (
        ("labels", template.labels, limits.labels),
        ("annotations", template.annotations, limits.annotations),
    ):
        for key in given:
            if not is_key_allowed(key, allowed):
                yield _told(f"template.{part} sets {key}", allowed, part)
    for part, name, allowed in (
        ("priorityClass", template.priority_class_name, limits.priority_classes),
        ("runtimeClass", template.runtime_class_name, limits.runtime_classes),
    ):
        if name and name not in allowed:
            yield _told(f"template.{part}Name is {name}", allowed, f"{part}es")
    yield from _toleration_faults(spec, settings)


def _toleration_faults(spec: InferenceJobSpec, settings: Settings) -> Iterator[str]:
    of_classes = {t.key for of_class in settings.accelerators.values() for t in of_class.tolerations if t.key}
    allowed = sorted({*of_classes, *settings.pod_template.tolerations})
    for toleration in spec.tolerations:
        if not toleration.key:
            yield _told("tolerations has an entry without a key, which tolerates every taint", allowed, "tolerations")
        elif not matches(toleration.key, allowed):
            yield _told(f"tolerations names the taint {toleration.key}", allowed, "tolerations")


def _told(what: str, allowed: Iterable[str], setting: str) -> str:
    listed = ", ".join(allowed) or "none"
    return f"{what}; this cluster allows {listed}: leave it out, or have the setting podTemplate.{setting} allow it"
