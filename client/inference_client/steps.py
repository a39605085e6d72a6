"""What the client does, request by request: generators that yield a `Call` and are sent its answer.

A generator knows neither threads nor an event loop, so both clients run the same one. It is thrown the error of a call that failed,
and is sent nothing after a `Pause`.
"""

from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

import msgspec

from inference_client import calls
from inference_client.api import InferenceJob, InferenceModel
from inference_client.calls import Call, Exec, Pause, Raw, Resource, Work
from inference_client.errors import (
    ClientError,
    ExpiredError,
    JobFailedError,
    NotFoundError,
    UnavailableError,
    UnreadableError,
    WaitTimeoutError,
)
from inference_client.job_state import Goal, cause, failed, hopeless, is_batch, reached

T = TypeVar("T")
Steps = Generator[Call | Pause, Raw, T]
AnySteps = Generator[Call | Pause | Exec | Work, Raw, T]
"""Steps that also run programs in pods, and work on this machine."""
Object = TypeVar("Object", bound=InferenceJob | InferenceModel)
Clock = Callable[[], float]

# A watch is asked for anew after so long, so that a connection that has died in silence is noticed.
WATCH_SECONDS = 60
# A server that was away is not asked at once again.
PAUSE = Pause(1.0)


class Listed(tuple[Object, ...]):  # noqa: SLOT001 -- a tuple of any length has no room for slots
    """The objects of a list, in its order; `unreadable` has an error for each that this client can't read, with the raw object.

    One object of a newer operator, or one that anybody who may has written, must not hide all others.
    """

    unreadable: tuple[UnreadableError, ...] = ()


def decode(raw: Raw, kind: type[T]) -> T:
    """An object of the API server as a value. Raises UnreadableError for one that doesn't have the API's shape."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        name = raw.get("metadata", {}).get("name")
        raise UnreadableError(raw, f"{name}: {error}; is the client as new as the operator?") from error


def worked(run: Callable[[], T]) -> AnySteps[T]:
    """What work on this machine returns; an event loop has it done elsewhere."""
    found: list[T] = []
    yield Work(lambda: found.append(run()))
    return found[0]


def read(resource: Resource, namespace: str, name: str, kind: type[Object]) -> Steps[Object]:
    """One object."""
    return decode((yield calls.get(resource, namespace, name)), kind)


def pages(resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "", most: int | None = None) -> Steps[Raw]:
    """A whole list, page by page; with `most`, no further page once so many are there."""
    items: list[Raw] = []
    resume = ""
    while True:
        page = yield calls.list_(resource, namespace, labels=labels, fields=fields, resume=resume)
        items += page.get("items", ())
        resume = page.get("metadata", {}).get("continue", "")
        if not resume or (most is not None and len(items) >= most):
            return {**page, "items": items}


def read_all(
    resource: Resource, namespace: str | None, kind: type[Object], *, labels: str = "", fields: str = ""
) -> Steps[Listed[Object]]:
    """All objects that match."""
    found = yield from pages(resource, namespace, labels=labels, fields=fields)
    return listed(found["items"], kind)


def listed(items: Iterable[Raw], kind: type[Object]) -> Listed[Object]:
    """Objects of the API server as values, and the errors of those that can't be read."""
    readable: list[Object] = []
    unreadable: list[UnreadableError] = []
    for one in items:
        try:
            readable.append(decode(one, kind))
        except UnreadableError as error:
            unreadable.append(error)
    made = Listed(readable)
    made.unreadable = tuple(unreadable)
    return made


def submit(manifest: Raw, namespace: str, *, dry_run: bool = False) -> Steps[InferenceJob]:
    """Create a job."""
    return decode((yield calls.create(calls.JOBS, namespace, manifest, dry_run=dry_run)), InferenceJob)


def set_suspend(namespace: str, name: str, *, suspend: bool) -> Steps[InferenceJob]:
    """Stop a job's workers and keep what is committed, or let it go on."""
    return decode((yield calls.patch(calls.JOBS, namespace, name, {"spec": {"suspend": suspend}})), InferenceJob)


def retry(namespace: str, name: str, *, timeout: float, clock: Clock) -> Steps[InferenceJob]:
    """Run a failed job again as it is.

    A batch runs anew when its spec has changed: it is suspended and resumed. A service makes another worker once the failed one
    is gone; until the operator has seen that, the old failure stands in the status, and would end whoever waits next.
    """
    give_up = clock() + timeout
    job = yield from read(calls.JOBS, namespace, name, InferenceJob)
    if not is_batch(job):
        query = f"inference.myorg/job-uid={job.metadata.uid}"
        found = yield from pages(calls.PODS, namespace, labels=query, fields="status.phase=Failed")
        for pod in found["items"]:
            yield calls.delete(calls.PODS, namespace, pod["metadata"]["name"])
        while found["items"] and (why := failed(job)) is not None:
            if clock() >= give_up:
                raise WaitTimeoutError(job, f"inferencejob/{name} is not tried again after {timeout:g} s: {why.reason}")
            job = yield from changed(job, give_up=give_up, clock=clock)
        return job
    if failed(job) is None:
        raise ClientError(f"inferencejob/{name} has not failed: only a failed batch is tried again")
    yield from set_suspend(namespace, name, suspend=True)
    yield from wait(namespace, name, Goal.SUSPENDED, timeout=timeout, clock=clock)
    return (yield from set_suspend(namespace, name, suspend=False))


def wait(
    namespace: str,
    name: str,
    goal: Goal,
    *,
    timeout: float,
    clock: Clock,
    on_change: Callable[[InferenceJob], None] = lambda _: None,
) -> Steps[InferenceJob]:
    """Wait until a job has come so far, at most `timeout` seconds.

    Raises JobFailedError as soon as it can't without a change, WaitTimeoutError, and NotFoundError when it is deleted meanwhile.
    """
    give_up = clock() + timeout
    job = yield from read(calls.JOBS, namespace, name, InferenceJob)
    while True:
        on_change(job)
        if reached(job, goal):
            return job
        if (why := hopeless(job, goal)) is not None:
            how = "has failed" if failed(job) is not None else f"has ended, and can't become {goal}"
            raise JobFailedError(job, f"inferencejob/{name} {how}: {why.reason}: {why.message}")
        job = yield from changed(job, give_up=give_up, clock=clock)
        if clock() >= give_up:
            # The last look counts: it may have come so far at the very end.
            if reached(job, goal):
                return job
            blocked = cause(job)
            so_far = f"{blocked.reason}: {blocked.message}" if blocked else f"{job.status.phase or 'no status yet'}"
            raise WaitTimeoutError(job, f"inferencejob/{name} is not {goal} after {timeout:g} s: {so_far}")


def changed(job: InferenceJob, *, give_up: float, clock: Clock) -> Steps[InferenceJob]:
    """The job once it differs, or as it is when the time is over."""
    namespace, name = job.metadata.namespace, job.metadata.name
    since = job.metadata.resource_version
    while (left := give_up - clock()) > 0:
        seconds = max(1, min(WATCH_SECONDS, round(left)))
        try:
            event = yield calls.next_change(calls.JOBS, namespace, since=since, seconds=seconds, fields=f"metadata.name={name}")
        except ExpiredError:
            # Of a job that nothing has changed for minutes: the list's version is that of now.
            event = {}
            found = yield calls.list_(calls.JOBS, namespace, fields=f"metadata.name={name}")
            since = found["metadata"]["resourceVersion"]
            newest = next((decode(one, InferenceJob) for one in found["items"]), None)
            if newest is None:
                raise NotFoundError(f"inferencejob/{name} is deleted") from None
            if newest.metadata.resource_version != job.metadata.resource_version:
                return newest
        except UnavailableError:
            if clock() >= give_up:
                raise
            event = {}
            yield PAUSE
        if event.get("type") == "DELETED":
            raise NotFoundError(f"inferencejob/{name} is deleted")
        if event:
            return decode(event["object"], InferenceJob)
    return job
