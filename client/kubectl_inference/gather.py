"""Read a snapshot of a job: a few bounded calls, and nothing that the page doesn't show."""

from collections.abc import Iterable
from datetime import UTC, datetime

from inference_client import calls, steps
from inference_client.api import InferenceJob, InferenceModel
from inference_client.calls import Raw, Resource
from inference_client.client import Client
from inference_client.errors import ForbiddenError, NotFoundError, UnreadableError
from inference_client.job_state import cause
from kubectl_inference.snapshot import ClaimView, Snapshot, event_view, pod_view

# Pods whose events are read: those that are in the way come first.
_WITH_EVENTS = 4
# Objects of a kind. Whoever may create events may create any number of them, for whoever asks to hold in memory.
_MOST = 2000


def now() -> datetime:
    """The time of this machine."""
    return datetime.now(UTC)


class Reader:
    """Reads what whoever asks may read, and remembers what not."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.unread: list[str] = []

    def all(self, what: str, resource: Resource, *, labels: str = "", fields: str = "") -> list[Raw]:
        """Objects that match; none where they may not be read, and at most so many as a page can show."""
        made = steps.pages(resource, self.namespace, labels=labels, fields=fields, most=_MOST)
        try:
            found = self.client.run(made)
        except ForbiddenError:
            self.unread.append(what)
            return []
        if found.get("metadata", {}).get("continue"):
            self.unread.append(f"{what} beyond the first {_MOST}")
        items: list[Raw] = found["items"]
        return items

    def one(self, what: str, resource: Resource, name: str) -> Raw | None:
        """An object, if it is there and may be read."""
        try:
            return self.client.transport.send(calls.get(resource, self.namespace, name))
        except NotFoundError:
            return None
        except ForbiddenError:
            self.unread.append(what)
            return None

    def pods(self, job: InferenceJob) -> list[Raw]:
        """The job's workers, oldest first; the one that a warm worker or a service lends it comes with them."""
        found = self.all("pods", calls.PODS, labels=f"inference.myorg/job-uid={job.metadata.uid}")
        placed = job.status.placement
        if placed is not None and placed.pod and placed.pod not in {one["metadata"]["name"] for one in found}:
            lent = self.one("pods", calls.PODS, placed.pod)
            found += [lent] if lent is not None else []
        return sorted(found, key=lambda one: str(one["metadata"].get("creationTimestamp", "")))

    def events(self, kind: str, name: str) -> list[Raw]:
        """The events about an object."""
        return self.all("events", calls.EVENTS, fields=f"regarding.kind={kind},regarding.name={name}")


def snapshot(client: Client, name: str, namespace: str) -> Snapshot:
    """A job and what belongs to it, at this moment. Raises NotFoundError."""
    reader = Reader(client, namespace)
    job = client.jobs.get(name, namespace=namespace)
    raw_pods = reader.pods(job)
    pods = tuple(pod_view(one) for one in raw_pods)
    events = reader.events("InferenceJob", name)
    for pod in [one for one in pods if one.problem or (not one.ready and one.phase == "Pending")][:_WITH_EVENTS]:
        events += reader.events("Pod", pod.name)
    why = cause(job)
    word = why.reason if why is not None else ""
    return Snapshot(
        job=job,
        now=now(),
        model=_model(reader, job),
        pods=pods,
        events=tuple(event_view(one) for one in events if _is_of(one, job, raw_pods)),
        models=_names(reader.all("models", calls.MODELS)) if word == "ModelUnknown" else (),
        claims=_claims(reader.all("claims", calls.CLAIMS)) if word == "VolumeUnavailable" else (),
        unread=tuple(dict.fromkeys(reader.unread)),
    )


def _model(reader: Reader, job: InferenceJob) -> InferenceModel | None:
    if "://" in job.spec.model:
        return None
    raw = reader.one("the model", calls.MODELS, job.spec.model)
    try:
        return None if raw is None else steps.decode(raw, InferenceModel)
    except UnreadableError as error:
        # What the job's status tells of its model is still worth reading.
        reader.unread.append(f"the model ({error})")
        return None


def _is_of(event: Raw, job: InferenceJob, pods: Iterable[Raw]) -> bool:
    """Whether an event is about this job, and not about one of the same name before it."""
    uid = event.get("regarding", {}).get("uid")
    return not uid or uid == job.metadata.uid or uid in {one["metadata"].get("uid") for one in pods}


def _names(found: Iterable[Raw]) -> tuple[str, ...]:
    return tuple(one["metadata"]["name"] for one in found)


def _claims(found: Iterable[Raw]) -> tuple[ClaimView, ...]:
    return tuple(ClaimView(one["metadata"]["name"], one.get("status", {}).get("phase", "Unknown")) for one in found)
