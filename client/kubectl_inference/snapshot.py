"""What the pages are made of: a job, and all that belongs to it, at one moment. Pure; `gather.py` reads it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from inference_client.api import InferenceJob, InferenceModel

Raw = Mapping[str, Any]

WORKER = "worker"
# What a container that starts as it should is waiting for.
_ORDINARY = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class PodView:
    """A worker pod, as far as it tells how the job stands."""

    name: str
    phase: str
    created: datetime | None = None
    node: str | None = None
    ready: bool = False
    attempt: int | None = None
    restarts: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class EventView:
    """An event about the job or one of its pods."""

    about: str
    type: str
    reason: str
    note: str
    time: datetime | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A PersistentVolumeClaim of the namespace."""

    name: str
    phase: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a page says is said of this. `unread` names what whoever asks may not read, so that nothing is taken for absent."""

    job: InferenceJob
    now: datetime
    model: InferenceModel | None = None
    pods: tuple[PodView, ...] = ()
    events: tuple[EventView, ...] = ()
    # Names in the job's namespace, to find what a mistyped one may have meant.
    models: tuple[str, ...] = ()
    claims: tuple[ClaimView, ...] = ()
    unread: tuple[str, ...] = ()


def pinned(snapshot: Snapshot) -> tuple[str, str | None] | None:
    """The model's file and the digest that is asked for, as far as they are known."""
    spec, model = snapshot.job.spec, snapshot.model
    if model is None:
        return (spec.model, spec.model_digest) if "://" in spec.model else None
    names = (spec.model_version, model.spec.default_version, model.spec.versions[-1].name)
    wanted = next(one for one in names if one)
    version = next((one for one in model.spec.versions if one.name == wanted), None)
    return None if version is None else (version.uri, spec.model_digest or version.digest)


def pod_view(raw: Raw) -> PodView:
    """A pod of the API server."""
    metadata, status = raw["metadata"], raw.get("status", {})
    attempt = metadata.get("labels", {}).get("inference.myorg/attempt", "")
    states = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    return PodView(
        name=metadata["name"],
        phase="Terminating" if metadata.get("deletionTimestamp") else status.get("phase", "Unknown"),
        created=instant(metadata.get("creationTimestamp")),
        node=raw.get("spec", {}).get("nodeName"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        attempt=int(attempt) if attempt.isdigit() else None,
        restarts=sum(one.get("restartCount", 0) for one in states),
        problem=next(_problems(states, conditions, status), None),
    )


def _problems(states: list[Raw], conditions: Mapping[str, Raw], status: Raw) -> Iterator[str]:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        yield f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}"
    for one in states:
        state = one.get("state", {})
        waits, ended = state.get("waiting") or {}, state.get("terminated") or {}
        if waits.get("reason") and waits["reason"] not in _ORDINARY:
            yield f"container {one['name']}: {waits['reason']}: {waits.get('message', '')}".rstrip(": ")
        if ended and ended.get("exitCode", 0) != 0:
            yield f"container {one['name']}: {_end(ended)}"
    if status.get("reason"):
        yield f"{status['reason']}: {status.get('message', '')}".rstrip(": ")


def _end(ended: Raw) -> str:
    """A container's last words: a worker leaves a report, others a text or nothing."""
    text = ended.get("message") or ""
    try:
        report = json.loads(text)
    except (ValueError, RecursionError):
        # Any container may leave any text.
        report = None
    if isinstance(report, dict) and report.get("message"):
        return f"{report.get('reason') or ended.get('reason', 'Error')}: {report['message']}"
    words = f"{ended.get('reason', 'Error')}, exit code {ended['exitCode']}"
    return f"{words}: {text.strip()[:500]}" if text.strip() else words


def event_view(raw: Raw) -> EventView:
    """An event of events.k8s.io/v1."""
    about = raw.get("regarding", {})
    series = raw.get("series") or {}
    times = (series.get("lastObservedTime"), raw.get("deprecatedLastTimestamp"), raw.get("eventTime"))
    created = raw["metadata"].get("creationTimestamp")
    return EventView(
        about=f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        type=raw.get("type", "Normal"),
        reason=raw.get("reason", ""),
        note=raw.get("note", ""),
        time=instant(next((one for one in (*times, created) if one), None)),
        count=series.get("count") or raw.get("deprecatedCount") or 1,
    )


def instant(text: str | None) -> datetime | None:
    """An instant of the API server; none for one that only the API server knows, such as of the year 0."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
