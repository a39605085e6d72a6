"""The worker pod: placed by node affinity, restricted, without Kubernetes credentials."""

from collections.abc import Mapping
from typing import Any

from inference_operator.accelerators import AcceleratorClass
from inference_operator.api import names
from inference_operator.api.job import KIND, Backend, InferenceJobSpec
from inference_operator.api.job_status import Placement
from inference_operator.api.model import KIND as MODEL_KIND
from inference_operator.api.resources import Resources
from inference_operator.api.schema import API_VERSION
from inference_operator.api.template import PodTemplate
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Model
from inference_operator.state.parse import placement_text
from inference_operator.workers import identity, template_pod, triton
from inference_operator.workers.config import worker_config
from inference_operator.workers.environment import environment
from inference_operator.workers.pod_template import template_on
from inference_operator.workers.probes import probes
from inference_operator.workers.security import container_security, host_users, pod_security
from inference_protocol.messages import (
    GRPC_PORT,
    HEALTH_PORT,
    HTTP_PORT,
    VOLUME_ROOT,
    ModelSource,
    WorkerConfig,
)

Manifest = dict[str, Any]

_PORTS = (("http", HTTP_PORT), ("grpc", GRPC_PORT), ("health", HEALTH_PORT))


def worker_pod(
    job: Job,
    spec: InferenceJobSpec,
    source: ModelSource,
    resources: Resources,
    placement: Placement,
    *,
    number: int,
    revision: str,
    mounts: Mapping[str, bool],
    settings: Settings,
    backend: Backend = Backend.ONNX,
    items_limit: int | None = None,
    task_token_digest: str = "",
) -> Manifest:
    """Return the pod of one attempt or replica. `placement.pod` is its name, `backend` what was chosen."""
    accelerator = settings.accelerators[placement.accelerator]
    config = worker_config(
        job,
        spec,
        source,
        accelerator,
        number=number,
        settings=settings,
        backend=backend,
        items_limit=items_limit,
        task_token_digest=task_token_digest,
    )
    labels = {
        names.LABEL_JOB: names.label_value(job.key.name),
        names.LABEL_JOB_UID: job.uid,
        **(names.serving(source.name) if spec.input is None else {}),
        **_labels(placement, number, revision),
    }
    owner, batch = owner_reference(job), spec.input is not None
    return pod(job, spec, config, resources, placement, owner=owner, labels=labels, mounts=mounts, settings=settings, movable=batch)


def pool_pod(
    model: Model,
    like: Job,
    spec: InferenceJobSpec,
    config: WorkerConfig,
    resources: Resources,
    placement: Placement,
    *,
    number: int,
    revision: str,
    mounts: Mapping[str, bool],
    settings: Settings,
) -> Manifest:
    """Return the pod of a warm worker: `like` that of a job which asks for nothing special, but owned by the model."""
    labels = {
        names.LABEL_MODEL: names.label_value(model.key.name),
        names.LABEL_MODEL_UID: model.uid,
        **_labels(placement, number, revision),
    }
    owner = owner_reference(model, kind=MODEL_KIND)
    return pod(like, spec, config, resources, placement, owner=owner, labels=labels, mounts=mounts, settings=settings, movable=True)


def pod(
    job: Job,
    spec: InferenceJobSpec,
    config: WorkerConfig,
    resources: Resources,
    placement: Placement,
    *,
    owner: Manifest,
    labels: dict[str, str],
    mounts: Mapping[str, bool],
    settings: Settings,
    movable: bool,
) -> Manifest:
    """Return a worker pod with this configuration. `mounts` are claims, and whether they are written to.

    `movable` says that another one goes on where this one ended, and nobody waits meanwhile.

    It is longer than others, so that it reads as the manifest does.
    """
    accelerator = settings.accelerators[placement.accelerator]
    template = template_on(spec, accelerator)
    with_triton = config.triton is not None
    own = triton.front_resources(resources) if with_triton else resources
    volumes = [
        *_volumes(mounts),
        *(triton.volumes() if with_triton else ()),
        *identity.volumes(spec, config.model, settings),
        *template_pod.volumes(template),
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": placement.pod,
            "namespace": job.key.namespace,
            "labels": {**template.labels, **labels},
            "annotations": {
                **_movable(volumes, whole=movable),
                **template.annotations,
                names.ANNOTATION_PLACEMENT: placement_text(placement),
            },
            "ownerReferences": [owner],
        },
        "spec": without_empty(
            {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": settings.termination_grace_seconds,
                "priorityClassName": template.priority_class_name,
                "runtimeClassName": template.runtime_class_name or accelerator.runtime_class_name,
                "imagePullSecrets": pull_secrets(template, settings),
                "nodeSelector": {**spec.node_selector, **accelerator.node_selector},
                "affinity": _on_node(placement.node),
                "tolerations": tolerations(spec, accelerator),
                "serviceAccountName": template.service_account_name,
                "hostAliases": [{"ip": one.ip, "hostnames": one.hostnames} for one in template.host_aliases],
                "securityContext": pod_security(settings, template_pod.ids(template.security_context)),
                **host_users(settings.worker_security),
                "initContainers": [
                    *([triton.sidecar(resources, settings)] if with_triton else ()),
                    *template_pod.containers(template, settings),
                ],
                "containers": [_container(job, spec, config, own, template, mounts, settings, accelerator)],
                "volumes": volumes,
            }
        ),
    }


def pull_secrets(template: PodTemplate, settings: Settings) -> list[Manifest]:
    """The Secrets by which a pod pulls its images."""
    return [{"name": name} for name in dict.fromkeys((*settings.image_pull_secrets, *template.image_pull_secrets))]


def owner_reference(owner: Job | Model, *, kind: str = KIND) -> Manifest:
    """Ties an object's life to its owner's: deletion is the garbage collector's, so it never hangs on us."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": owner.key.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _movable(volumes: list[Manifest], *, whole: bool) -> dict[str, str]:
    """What the cluster autoscaler may end. It empties no node with a pod whose owner or volumes it does not know."""
    scratch = ",".join(volume["name"] for volume in volumes if "emptyDir" in volume)
    return {**({names.ANNOTATION_MOVABLE: "true"} if whole else {}), names.ANNOTATION_MOVABLE_VOLUMES: scratch}


def _labels(placement: Placement, number: int, revision: str) -> dict[str, str]:
    return {
        names.LABEL_NAME: names.WORKER_NAME,
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_ATTEMPT: str(number),
        names.LABEL_REVISION: revision,
        names.LABEL_ACCELERATOR: placement.accelerator,
    }


def _on_node(node: str) -> Manifest:
    # Affinity and not spec.nodeName: taints, quotas and the bind stay kube-scheduler's, and it says why when it can't.
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def tolerations(spec: InferenceJobSpec, accelerator: AcceleratorClass) -> list[Manifest]:
    """What a pod tolerates: for its class, and for its job."""
    of_class = [
        without_empty({"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect}) for t in accelerator.tolerations
    ]
    of_job = [
        without_empty(
            {
                "key": t.key,
                "operator": t.operator,
                "value": t.value,
                "effect": t.effect,
                "tolerationSeconds": t.toleration_seconds,
            }
        )
        for t in spec.tolerations
    ]
    return [*of_class, *of_job]


def _container(
    job: Job,
    spec: InferenceJobSpec,
    config: WorkerConfig,
    resources: Resources,
    template: PodTemplate,
    mounts: Mapping[str, bool],
    settings: Settings,
    accelerator: AcceleratorClass,
) -> Manifest:
    env_from = template_pod.variables_from(template, settings)
    return {
        "name": names.CONTAINER,
        "image": worker_image(settings, accelerator, Backend(config.backend)),
        "imagePullPolicy": settings.image_pull_policy,
        "env": environment(job, config, template, settings),
        **({"envFrom": env_from} if env_from else {}),
        "ports": [{"name": name, "containerPort": number} for name, number in _PORTS],
        "resources": {"requests": resources.requests, "limits": resources.limits},
        **probes(settings),
        "securityContext": container_security(),
        "volumeMounts": [
            *_volume_mounts(mounts, with_triton=config.triton is not None),
            *identity.mounts(spec, config.model, settings),
            *template_pod.mounts(template.volume_mounts),
        ],
    }


def worker_image(settings: Settings, accelerator: AcceleratorClass, backend: Backend) -> str:
    """The image of the worker itself: that of a class is for its execution providers, which PyTorch has no use for."""
    if backend is Backend.TORCHSCRIPT:
        return settings.backends.torchscript.image
    return accelerator.image or settings.worker_image


def _volume_mounts(mounts: Mapping[str, bool], *, with_triton: bool) -> list[Manifest]:
    tmp: Manifest = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108
    mounted = [
        {"name": f"claim-{i}", "mountPath": f"{VOLUME_ROOT}/{claim}", "readOnly": not writable}
        for i, (claim, writable) in enumerate(mounts.items())
    ]
    return [tmp, *([triton.mount()] if with_triton else ()), *mounted]


def _volumes(mounts: Mapping[str, bool]) -> list[Manifest]:
    tmp: Manifest = {"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}}
    return [tmp, *claim_volumes(mounts)]


def claim_volumes(mounts: Mapping[str, bool]) -> list[Manifest]:
    """The claims that a pod mounts, each with whether it is written to."""
    return [
        {"name": f"claim-{i}", "persistentVolumeClaim": {"claimName": claim, "readOnly": not writable}}
        for i, (claim, writable) in enumerate(mounts.items())
    ]


def without_empty(manifest: Manifest) -> Manifest:
    """A manifest without what it leaves open."""
    return {key: value for key, value in manifest.items() if value not in (None, {}, [])}
