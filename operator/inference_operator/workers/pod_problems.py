"""What keeps a created pod from running, as a reason of ours with the kubelet's or the scheduler's own words."""

import re

from inference_operator.api.conditions import Reason
from inference_operator.state.objects import Pod
from inference_operator.state.observed import Observed
from inference_operator.state.volumes import deleting
from inference_operator.workers import template_pod, triton

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable"})
# Between two pulls the kubelet puts this before what the last one said. A status that follows it is written every few seconds.
_PAUSE = re.compile(r'^Back-off pulling image "[^"]*": (?:ErrImagePull: )?')


def problem_of(pod: Pod) -> tuple[Reason, str] | None:
    """Reason and message; None while all is well."""
    if pod.problem is None or pod.over:
        return None
    words = _PAUSE.sub("", pod.problem.message) or pod.problem.reason
    if pod.problem.container.startswith(template_pod.PREFIX):
        return _of_template(pod.problem.container.removeprefix(template_pod.PREFIX), pod.problem.reason, words)
    if pod.problem.container not in ("", triton.CONTAINER):
        return Reason.PENDING, f"container {pod.problem.container} beside the worker: {pod.problem.reason}: {words}"
    if pod.problem.reason in _IMAGE:
        whose, fields = _image(pod)
        cure = f"check {fields} in the chart's values, and the job's template.imagePullSecrets"
        return Reason.IMAGE_UNAVAILABLE, f"{whose} image can't be had on node {pod.node}: {words}; {cure}"
    if "persistentvolumeclaim" in words.lower():
        return Reason.VOLUME_UNAVAILABLE, f"{words}; create the claim in this namespace, or correct the job's pvc:// URI"
    if pod.problem.reason == "Unschedulable":
        return Reason.UNSCHEDULABLE, f"kube-scheduler says: {words}"
    return Reason.PENDING, f"{pod.problem.reason}: {words}"


def _of_template(name: str, reason: str, words: str) -> tuple[Reason, str]:
    if reason in _IMAGE:
        cure = "correct it, or set template.imagePullSecrets"
        return Reason.IMAGE_UNAVAILABLE, f"the image of the template's container {name} can't be had: {words}; {cure}"
    return Reason.PENDING, f"the template's container {name} keeps the worker from starting: {reason}: {words}; see its log"


def _image(pod: Pod) -> tuple[str, str]:
    """Whose image a pod can't have, and the values that may name it: a class's image wins over the one for all."""
    if pod.problem is not None and pod.problem.container == triton.CONTAINER:
        return f"{triton.CONTAINER}'s", "backends.triton.image"
    named = f"accelerators.{pod.worker.accelerator}.image, or " if pod.worker is not None and pod.worker.accelerator else ""
    return "the worker's", f"{named}worker.image where the class has none (backends.torchscript.image for TorchScript)"


def out_of_reach(observed: Observed) -> str:
    """What to add to a message while workers lose what they need: nodes that nobody reaches, claims that are being deleted."""
    lost = (pod for pod in observed.pods if pod.uid in observed.lost and not pod.terminal)
    nodes = sorted({pod.node or "" for pod in lost})
    silent = sorted(attempt.pod.key.name for attempt in observed.attempts if attempt.pod.uid in observed.silent - observed.lost)
    mounted = {claim for pod in observed.live for claim in pod.claims}
    going = sorted({pod.node or "" for pod in observed.live if pod.uid in observed.moving})
    then = (
        "and the batch goes on elsewhere once it is drained" if observed.job.is_batch else "so its workers move where there is room"
    )
    claims = sorted(claim for claim in mounted if deleting((claim,), observed.claims))
    return "".join(
        (
            *(f"; node {node} is out of reach" for node in nodes),
            *(f"; worker {name} does not answer" for name in silent),
            *(f"; node {node} takes no more work, {then}" for node in going),
            *(f"; claim {claim} is being deleted, so no further worker can mount it" for claim in claims),
        )
    )
