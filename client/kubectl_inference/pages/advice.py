"""What to do about what is in the way: the cure of the reason, and the commands that carry it out here."""

import json
import shlex
from collections.abc import Callable, Iterator
from difflib import get_close_matches

from inference_client.api import InferenceJob
from inference_client.job_state import Cause, cause, condition, failed, is_batch, is_current
from inference_client.texts import reason_text
from kubectl_inference import visible
from kubectl_inference.snapshot import Snapshot, pinned

_CLAIM = "pvc://"


def advice(snapshot: Snapshot) -> tuple[str, ...]:
    """What helps, most helpful first; empty for a job that is where it should be."""
    return tuple(dict.fromkeys(_advice(snapshot)))


def in_the_way(job: InferenceJob) -> Cause | None:
    """What is in the way of a job; none of one that is where it should be, or on its way there."""
    why = cause(job)
    return None if why is None or why.reason in _ON_ITS_WAY else why


def _advice(snapshot: Snapshot) -> Iterator[str]:
    job = snapshot.job
    if not job.status.conditions:
        yield (
            "The operator has not seen the job. If that lasts, see whether it runs, and whether it watches this namespace "
            "(watchNamespaces in the chart): kubectl get deploy -A -l app.kubernetes.io/name=inference-operator"
        )
        return
    if not is_current(job):
        yield "The operator has not seen the newest spec yet. If that lasts, read the operator's log."
    if (stopped := condition(job.status.conditions, "Suspended")) is not None and stopped.status == "True":
        yield f"Let it go on: {_command(snapshot, 'resume')}"
        return
    why = in_the_way(job)
    if why is not None:
        yield from _against(snapshot, why)
    for one in job.status.conditions:
        text = reason_text(one.reason)
        told = why is not None and one.reason == why.reason
        if one.type in _OTHERS and text is not None and not told and not text.cure.startswith(_NOTHING):
            yield f"{one.reason}: {text.cure}"


def _against(snapshot: Snapshot, why: Cause) -> Iterator[str]:
    job = snapshot.job
    if (text := reason_text(why.reason)) is not None:
        yield text.cure
    if (particular := _PARTICULAR.get(why.reason)) is not None:
        yield from particular(snapshot, why)
    # A pod that waits for a node, a volume or an image has no log.
    if any(one.phase != "Pending" for one in snapshot.pods) and why.reason not in _WITHOUT_WORKER:
        yield f"Read the worker's log: {_command(snapshot, 'logs')}"
    if is_batch(job) and failed(job) is not None:
        yield f"An edit of the spec runs the job anew. If the cause was elsewhere and is mended: {_command(snapshot, 'retry')}"


_ON_ITS_WAY = frozenset({"Running", "Starting", "Serving", "Succeeded", "ScaledToZero"})
# Conditions that may ask for something beside what is in the way: a limit that was applied, an autoscaler that can't scale.
_OTHERS = frozenset({"Accepted", "Autoscaled"})
_NOTHING = "No action is needed"
_WITHOUT_WORKER = frozenset(
    {"ModelUnknown", "ModelVersionUnknown", "NoNodeFits", "NoFreeCapacity", "Provisioning", "FairShare", "DeadlineInfeasible"}
)


def _command(snapshot: Snapshot, verb: str) -> str:
    metadata = snapshot.job.metadata
    return f"kubectl inference {verb} {metadata.name} -n {metadata.namespace}"


def _patch(snapshot: Snapshot, **spec: str) -> str:
    metadata, change = snapshot.job.metadata, json.dumps({"spec": spec})
    return f"kubectl patch ij/{metadata.name} -n {metadata.namespace} --type=merge -p '{change}'"


def _model(snapshot: Snapshot, _: Cause) -> Iterator[str]:
    wanted = snapshot.job.spec.model
    near = get_close_matches(wanted, snapshot.models, n=1)
    if near:
        yield f"Did you mean {near[0]}? {_patch(snapshot, model=near[0])}"
    elif "models" not in snapshot.unread:
        yield f"The namespace has {_listed('InferenceModel', snapshot.models)}."


def _version(snapshot: Snapshot, _: Cause) -> Iterator[str]:
    if snapshot.model is not None:
        yield f"The InferenceModel has {_listed('version', tuple(one.name for one in snapshot.model.spec.versions))}."


def _claim(snapshot: Snapshot, _: Cause) -> Iterator[str]:
    if "claims" in snapshot.unread:
        return
    found = tuple(one.name if one.phase == "Bound" else f"{one.name} ({one.phase})" for one in snapshot.claims)
    yield f"The namespace has {_listed('PersistentVolumeClaim', found)}."


def _file(snapshot: Snapshot, _: Cause) -> Iterator[str]:
    yield from _push(snapshot, _model_uri(snapshot), "Copy it there", "")


def _input(snapshot: Snapshot, _: Cause) -> Iterator[str]:
    found = snapshot.job.spec.input
    yield from _push(snapshot, found.uri if found is not None else None, "Copy it there", "")


def _digest(snapshot: Snapshot, _: Cause) -> Iterator[str]:
    yield from _push(
        snapshot, _model_uri(snapshot), "If the file is the wrong one, replace it, which also prints its digest", " --force"
    )


def _model_uri(snapshot: Snapshot) -> str | None:
    wanted = pinned(snapshot)
    return None if wanted is None else wanted[0]


def _push(snapshot: Snapshot, uri: str | None, when: str, flags: str) -> Iterator[str]:
    """The command that copies a file to where it is looked for; none where that is no claim."""
    if uri is not None and uri.startswith(_CLAIM):
        # The shell that it is pasted into takes it for one word, whatever a job's author has written there.
        place = shlex.quote(visible.line(uri.removeprefix(_CLAIM)))
        yield f"{when}: kubectl inference push FILE {place} -n {snapshot.job.metadata.namespace}{flags}"


def _deadline(snapshot: Snapshot, _: Cause) -> Iterator[str]:
    yield f"Set a later deadline: {_patch(snapshot, deadline='YYYY-MM-DDTHH:MM:SSZ')}"
    if snapshot.job.spec.deadline_policy == "Firm":
        yield f"Or let it finish late: {_patch(snapshot, deadlinePolicy='Soft')}"


def _place(snapshot: Snapshot, _: Cause) -> Iterator[str]:
    yield f"See what each place lacks: {_command(snapshot, 'explain')}"


def _node(snapshot: Snapshot, _: Cause) -> Iterator[str]:
    namespace = snapshot.job.metadata.namespace
    yield f"See what the autoscaler says: kubectl get events -n {namespace} --field-selector involvedObject.kind=Pod"


_PARTICULAR: dict[str, Callable[[Snapshot, Cause], Iterator[str]]] = {
    "ModelUnknown": _model,
    "ModelVersionUnknown": _version,
    "VolumeUnavailable": _claim,
    "ModelNotFound": _file,
    "InputNotFound": _input,
    "ModelDigestMismatch": _digest,
    "DeadlineExceeded": _deadline,
    "DeadlineInfeasible": _deadline,
    "NoNodeFits": _place,
    "NoFreeCapacity": _place,
    "Provisioning": _node,
    "FairShare": _place,
}


def _listed(noun: str, names: tuple[str, ...]) -> str:
    if not names:
        return f"no {noun}"
    shown = ", ".join(sorted(names)[:10])
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"{'this' if len(names) == 1 else 'these'} {noun}{'' if len(names) == 1 else 's'}: {shown}{more}"
