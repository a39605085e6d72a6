"""Whether a job keeps to what the cluster lets it add to worker pods."""

from collections.abc import Iterable, Iterator

from inference_operator.accelerators import AUTO, AcceleratorClass
from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.pod_parts import Container, ContainerVariable, EnvironmentVariable
from inference_operator.api.template import PodTemplate
from inference_operator.settings import Settings
from inference_operator.state.objects import Model
from inference_operator.template_limits import (
    USUAL_ENVIRONMENT,
    TemplateLimits,
    is_environment_allowed,
    is_id_allowed,
    is_key_allowed,
    is_prefix_allowed,
    matches,
)
from inference_operator.workers import pod_template
from inference_operator.workers.fetch_rules import ENDPOINTS

# What a container beside the worker may ask for: devices come from the accelerator class alone.
_PLAIN_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def template_fault(spec: InferenceJobSpec, settings: Settings, model: Model | None = None) -> str | None:
    """Return the first part of `template` or `tolerations` that is not allowed, with what is; None where all is."""
    return next(_faults(spec, settings, model), None)


def class_faults(accelerators: dict[str, AcceleratorClass]) -> Iterator[str]:
    """Yield what is wrong with templates of classes. They are the administrator's, so only what no setting allows is."""
    for name, accelerator in accelerators.items():
        found = pod_template.unreadable(name, accelerator)
        if found is not None:
            yield found
            continue
        template = pod_template.of_class(accelerator) or pod_template.NOTHING
        everything = TemplateLimits(environment=tuple(e.name for e in template.env), labels=("*",), annotations=("*",))
        where = f"accelerators.{name}.template"
        for variable in template.env:
            if not is_environment_allowed(variable.name, everything):
                yield f"{where}.env sets {variable.name}, which the loader, Python or a runtime obeys; leave it out"
            elif variable.name in ENDPOINTS:
                yield f"{where}.env sets {variable.name}; set tracing.endpoint instead"
        for one in template.env_from:
            stem = f"{one.prefix}*"
            if not is_prefix_allowed(one.prefix, TemplateLimits(environment=(stem,))):
                yield f"{where}.envFrom has the prefix {one.prefix}, with which reserved names begin; choose another"
        for key in (*template.labels, *template.annotations):
            if not is_key_allowed(key, ("*",)):
                yield f"{where} sets {key}, which is reserved; leave it out"
        yield from (f"{where}: {fault}" for fault in _whole_faults(template))


def _faults(spec: InferenceJobSpec, settings: Settings, model: Model | None) -> Iterator[str]:
    limits = settings.pod_template
    if model is not None and model.spec is not None and model.spec.template is not None:
        yield from (f"InferenceModel {model.key.name}: {fault}" for fault in _template_faults(model.spec.template, limits))
    yield from _template_faults(spec.template or pod_template.NOTHING, limits)
    yield from _toleration_faults(spec, settings)
    known = settings.accelerators
    both = pod_template.with_model(spec, model)
    for name in known if spec.accelerator == AUTO else (spec.accelerator,):
        if name in known:
            yield from (f"template{fault}" for fault in _whole_faults(pod_template.template_on(both, known[name])))


def _template_faults(template: PodTemplate, limits: TemplateLimits) -> Iterator[str]:
    """Yield what the lists of the settings don't allow."""
    yield from _variable_faults(template, limits)
    for part, keys, allowed in (
        ("labels", template.labels, limits.labels),
        ("annotations", template.annotations, limits.annotations),
    ):
        yield from (_told(f"template.{part} sets {key}", allowed, part) for key in keys if not is_key_allowed(key, allowed))
    hosts = [name for one in template.host_aliases for name in one.hostnames]
    for what, given, allowed, setting in (
        (".priorityClassName is", [template.priority_class_name], limits.priority_classes, "priorityClasses"),
        (".runtimeClassName is", [template.runtime_class_name], limits.runtime_classes, "runtimeClasses"),
        (".serviceAccountName is", [template.service_account_name], limits.service_accounts, "serviceAccounts"),
        (".hostAliases names", hosts, limits.host_aliases, "hostAliases"),
        (" has a container of", [one.image for one in pod_template.containers(template)], limits.images, "images"),
        (" shows the Secret", _secrets(template), limits.secrets, "secrets"),
    ):
        refused = (name for name in given if name and not matches(name, allowed))
        yield from (_told(f"template{what} {name}", allowed, setting) for name in refused)
    for number in _ids(template):
        if not is_id_allowed(number, limits):
            yield _told(f"template.securityContext has the id {number}", map(str, limits.ids), "ids")


def _variable_faults(template: PodTemplate, limits: TemplateLimits) -> Iterator[str]:
    names = (*USUAL_ENVIRONMENT, *limits.environment)
    for variable in template.env:
        if not is_environment_allowed(variable.name, limits):
            yield _told(f"template.env sets {variable.name}", names, "environment")
        elif variable.name in ENDPOINTS and variable.value_from is not None:
            yield f"template.env takes {variable.name} from an object; write its value, so that its host can be checked"
    for one in template.env_from:
        if not is_prefix_allowed(one.prefix, limits):
            stems = [entry for entry in names if entry.endswith("*")]
            yield _told(f"template.envFrom sets names that begin with {one.prefix}", stems, "environment")


def _secrets(template: PodTemplate) -> Iterator[str]:
    yield from (volume.secret.secret_name for volume in template.volumes if volume.secret is not None)
    yield from (one.secret_ref.name for one in template.env_from if one.secret_ref is not None)
    variables: list[EnvironmentVariable | ContainerVariable] = [*template.env]
    for one in pod_template.containers(template):
        variables += one.env
    sources = (variable.value_from for variable in variables)
    yield from (one.secret_key_ref.name for one in sources if one is not None and one.secret_key_ref is not None)


def _ids(template: PodTemplate) -> Iterator[int]:
    asked = template.security_context
    if asked is not None:
        named = (asked.run_as_user, asked.run_as_group, asked.fs_group)
        yield from (number for number in (*named, *asked.supplemental_groups) if number is not None)


def _whole_faults(template: PodTemplate) -> Iterator[str]:
    """Yield what doesn't fit together in the template of a pod, after all that goes into it is merged."""
    volumes = {volume.name for volume in template.volumes}
    mounted = [mount.name for mount in template.volume_mounts]
    mounted += [mount.name for one in pod_template.containers(template) for mount in one.volume_mounts]
    for name in mounted:
        if name not in volumes:
            listed = ", ".join(sorted(volumes)) or "none"
            yield f".volumeMounts names the volume {name}; there is {listed}: add it to volumes, or name another"
    names = [one.name for one in pod_template.containers(template)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f" has two containers {name}; name them differently"
    for one in pod_template.containers(template):
        for resource in _resources(one):
            if resource not in _PLAIN_RESOURCES:
                yield f": container {one.name} asks for {resource}; it may ask for {', '.join(_PLAIN_RESOURCES)}"


def _resources(one: Container) -> Iterable[str]:
    return {*one.resources.requests, *one.resources.limits} if one.resources is not None else ()


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
