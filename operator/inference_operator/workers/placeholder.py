"""Placeholder pods: they take what a worker would, name no node, and wait until the cluster's autoscaler has made one for them.

They never become the worker. Once there is room, the placeholder makes way, and the worker goes where the scheduler decides.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from inference_operator.api import names
from inference_operator.api.job import Backend
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Key, Placeholder
from inference_operator.state.resources import CPU, PODS, Amounts
from inference_operator.workers import template_pod
from inference_operator.workers.actions import CreatePod
from inference_operator.workers.creation import assumed
from inference_operator.workers.options import worker_resources
from inference_operator.workers.pod import claim_volumes, owner_reference, pull_secrets, tolerations, without_empty, worker_image
from inference_operator.workers.pod_template import template_on
from inference_operator.workers.resolve import ResolvedJob
from inference_operator.workers.security import container_security, host_users, pod_security
from inference_operator.workers.triton import pod_amounts

Manifest = dict[str, Any]

# It only waits for its end. The chart's admission policy knows the command.
COMMAND = ["python3", "-I", "-c", "import signal; signal.pause()"]


def growing(job: Job, classes: Iterable[str], settings: Settings, now: datetime) -> frozenset[str]:
    """Return the classes of which a job may ask for new nodes now: those that grow, but for one whose last node has not come."""
    waits = {one.accelerator for one in job.status.provisioning or () if one.retry_time is not None and one.retry_time > now}
    return frozenset(name for name in classes if settings.accelerators[name].provisioning is not None and name not in waits)


def create_placeholder(resolved: ResolvedJob, accelerator: str, *, number: int, settings: Settings, now: datetime) -> CreatePod:
    """Return the action that asks for a new node of an accelerator class on behalf of a job."""
    job = resolved.job
    key = Key(job.key.namespace, names.placeholder_name(job.key.name, job.uid, number))
    of_class = settings.accelerators[accelerator]
    resources = worker_resources(resolved.spec, resolved.model, accelerator, of_class)
    with_sidecar = resolved.backend is Backend.TRITON
    requests = pod_amounts(resources, template_on(resolved.spec, of_class), with_sidecar=with_sidecar)
    manifest = placeholder_pod(resolved, accelerator, key.name, requests, settings)
    stands_for = assumed(key, requests, Placeholder(job.uid, accelerator), (), now)
    return CreatePod(manifest, stands_for, f"{job.key} needs a new node of class {accelerator}")


def placeholder_pod(resolved: ResolvedJob, accelerator: str, name: str, requests: Amounts, settings: Settings) -> Manifest:
    """Return a pod that fits where a worker with these requests would.

    It has no priority class: by one above others kube-scheduler would preempt pods for it, and who makes room is the plan's to say.
    """
    job, spec, of_class = resolved.job, resolved.spec, settings.accelerators[accelerator]
    template = template_on(spec, of_class)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": job.key.namespace,
            "labels": {
                names.LABEL_NAME: names.PLACEHOLDER_NAME,
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_JOB: names.label_value(job.key.name),
                names.LABEL_PLACEHOLDER: job.uid,
                names.LABEL_ACCELERATOR: accelerator,
            },
            "annotations": {names.ANNOTATION_MOVABLE: "true"},
            "ownerReferences": [owner_reference(job)],
        },
        "spec": without_empty(
            {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                # Nothing runs that would have to end first, and the worker waits for the room.
                "terminationGracePeriodSeconds": 0,
                "runtimeClassName": template.runtime_class_name or of_class.runtime_class_name,
                "imagePullSecrets": pull_secrets(template, settings),
                "nodeSelector": {**spec.node_selector, **of_class.node_selector},
                "tolerations": tolerations(spec, of_class),
                "securityContext": pod_security(settings, template_pod.ids(template.security_context)),
                **host_users(settings.worker_security),
                "containers": [
                    {
                        "name": "placeholder",
                        "image": worker_image(settings, of_class, resolved.backend),
                        "imagePullPolicy": settings.image_pull_policy,
                        "command": COMMAND,
                        "resources": quantities(requests),
                        "securityContext": container_security(),
                    }
                ],
                # Claims decide on which nodes a pod may be.
                "volumes": claim_volumes(resolved.claims),
            }
        ),
    }


def quantities(requests: Amounts) -> Mapping[str, Mapping[str, str]]:
    """Return requests as a container has them, and equal limits, which a quota may ask for."""
    written = {name: f"{amount}m" if name == CPU else str(amount) for name, amount in requests.items() if name != PODS}
    return {"requests": written, "limits": written}
