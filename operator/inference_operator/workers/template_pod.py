"""A template as parts of a pod's manifest. What has a name of the template's gets `extra-` before it, by which policies know it."""

from typing import Any

from inference_operator.api.pod_parts import (
    Container,
    ContainerMount,
    ContainerVariable,
    EnvironmentFrom,
    EnvironmentVariable,
    KeyFile,
    RunAs,
    VariableSource,
    Volume,
    VolumeMount,
)
from inference_operator.api.template import PodTemplate
from inference_operator.settings import Settings
from inference_operator.state.resources import add, amounts
from inference_operator.template_limits import is_environment_allowed, is_prefix_allowed
from inference_operator.workers.security import container_security

Manifest = dict[str, Any]

PREFIX = "extra-"


def variables(template: PodTemplate, settings: Settings) -> list[Manifest]:
    """Return the variables of the worker container. What is not allowed is left out, whoever lets such a job come so far."""
    return [_variable(e) for e in template.env if is_environment_allowed(e.name, settings.pod_template)]


def variables_from(template: PodTemplate, settings: Settings) -> list[Manifest]:
    """Return the objects whose entries become variables of the worker container, where every name that may result is allowed."""
    return [_from(one) for one in template.env_from if is_prefix_allowed(one.prefix, settings.pod_template)]


def volumes(template: PodTemplate) -> list[Manifest]:
    """Return the volumes."""
    return [{"name": PREFIX + one.name, **_source(one)} for one in template.volumes]


def mounts(given: list[VolumeMount] | list[ContainerMount]) -> list[Manifest]:
    """Return where a container finds volumes."""
    return [{"name": PREFIX + one.name, "mountPath": one.mount_path, "readOnly": one.read_only} for one in given]


def containers(template: PodTemplate, settings: Settings) -> list[Manifest]:
    """Return the sidecars, and after them the init containers, which may need them."""
    sidecars = [{**_container(one, settings), "restartPolicy": "Always"} for one in template.sidecars]
    return [*sidecars, *(_container(one, settings) for one in template.init_containers)]


def with_containers(total: dict[str, int], template: PodTemplate, *, before: dict[str, int]) -> dict[str, int]:
    """Return what a pod takes from its node with these containers; `before` is what sidecars of the operator's own take."""
    found, sidecars = dict(total), dict(before)
    for one in template.sidecars:
        own = _amounts(one)
        add(found, own)
        add(sidecars, own)
    for one in template.init_containers:
        moment = dict(sidecars)
        add(moment, _amounts(one))
        found |= {name: max(found.get(name, 0), value) for name, value in moment.items()}
    return found


def ids(given: RunAs | None) -> Manifest:
    """Return the ids that a template has its pods run as: fields of the pod's security context."""
    if given is None:
        return {}
    named = {"runAsUser": given.run_as_user, "runAsGroup": given.run_as_group, "fsGroup": given.fs_group}
    found: Manifest = {name: value for name, value in named.items() if value is not None}
    if given.fs_group is not None:
        found["fsGroupChangePolicy"] = "OnRootMismatch"
    return {**found, **({"supplementalGroups": given.supplemental_groups} if given.supplemental_groups else {})}


def _container(one: Container, settings: Settings) -> Manifest:
    resources = one.resources
    made: Manifest = {
        "name": PREFIX + one.name,
        "image": one.image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": one.command,
        "args": one.args,
        "env": [_variable(e) for e in one.env],
        "resources": {"requests": resources.requests, "limits": resources.limits} if resources is not None else {},
        "volumeMounts": mounts(one.volume_mounts),
    }
    return {**{key: value for key, value in made.items() if value}, "securityContext": container_security()}


def _amounts(one: Container) -> dict[str, int]:
    return amounts({**one.resources.limits, **one.resources.requests}) if one.resources is not None else {}


def _variable(one: EnvironmentVariable | ContainerVariable) -> Manifest:
    if one.value_from is None:
        return {"name": one.name, "value": one.value}
    return {"name": one.name, "valueFrom": _value(one.value_from)}


def _value(source: VariableSource) -> Manifest:
    if source.field_ref is not None:
        return {"fieldRef": {"apiVersion": "v1", "fieldPath": source.field_ref.field_path}}
    kind = "secretKeyRef" if source.secret_key_ref is not None else "configMapKeyRef"
    reference = source.secret_key_ref or source.config_map_key_ref
    if reference is None:
        return {}
    return {kind: {"name": reference.name, "key": reference.key, "optional": reference.optional}}


def _from(one: EnvironmentFrom) -> Manifest:
    kind = "secretRef" if one.secret_ref is not None else "configMapRef"
    reference = one.secret_ref or one.config_map_ref
    named = {"name": reference.name, "optional": reference.optional} if reference is not None else {}
    return {"prefix": one.prefix, kind: named}


def _source(volume: Volume) -> Manifest:
    if volume.secret is not None:
        named = {"secretName": volume.secret.secret_name, "optional": volume.secret.optional}
        # As the operator's own: readable by whoever the worker runs as.
        return {"secret": {**named, "items": _items(volume.secret.items), "defaultMode": 0o444}}
    if volume.config_map is not None:
        items = {"items": _items(volume.config_map.items)} if volume.config_map.items else {}
        return {"configMap": {"name": volume.config_map.name, "optional": volume.config_map.optional, **items}}
    return {"emptyDir": {"sizeLimit": volume.empty_dir.size_limit if volume.empty_dir is not None else "1Gi"}}


def _items(files: list[KeyFile]) -> list[Manifest]:
    return [{"key": file.key, "path": file.path} for file in files]
