"""The API server's audit log as measurements: its clock counts microseconds, where objects' own times count whole seconds.

Pure but for `since`: lines in, values out.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from pathlib import Path

import msgspec

_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_ACCOUNTS = "system:serviceaccount:kube-system:"
_QUIET = frozenset({"leases", "events"})
_POD = "authentication.kubernetes.io/pod-name"


class _Reference(msgspec.Struct, rename="camel"):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class _User(msgspec.Struct):
    username: str = ""
    extra: dict[str, list[str]] = {}


class _Event(msgspec.Struct, rename="camel"):
    verb: str
    stage: str
    request_received_timestamp: datetime
    stage_timestamp: datetime
    user: _User
    user_agent: str = ""
    object_ref: _Reference | None = None
    response_status: _Status | None = None
    audit_id: str = msgspec.field(default="", name="auditID")


_DECODER = msgspec.json.Decoder(_Event)


@dataclass(frozen=True, slots=True)
class Request:
    """One answered request. `received` and `answered` are seconds since the epoch; `resource` holds the subresource, too."""

    actor: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    received: float
    answered: float
    pod: str = ""
    """The pod whose token was shown; empty where it was no pod's."""

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return self.verb in _WRITES

    @property
    def succeeded(self) -> bool:
        """Whether it was carried out."""
        return self.code < 300


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch that the API server has granted. `ended` is None where it goes on, or the API server was killed meanwhile."""

    user: str
    resource: str
    started: float
    ended: float | None = None


def since(log: Path, mark: int) -> list[bytes]:
    """What was written since a log had so many bytes: all of it, where another has begun in its place."""
    with log.open("rb") as file:
        file.seek(mark if log.stat().st_size >= mark else 0)
        # A last line that is still being written has no end yet.
        return [line for line in file if line.endswith(b"\n")]


def watches(lines: Iterable[bytes]) -> list[Watch]:
    """Read the watches that have begun, in the order in which they did."""
    found: dict[str, Watch] = {}
    for line in lines:
        event = _DECODER.decode(line)
        if event.verb != "watch" or event.object_ref is None:
            continue
        if event.stage == "ResponseStarted" and event.response_status is not None and event.response_status.code == HTTPStatus.OK:
            begun = event.stage_timestamp.timestamp()
            found[event.audit_id] = Watch(event.user.username, event.object_ref.resource, begun)
        elif event.audit_id in found:
            found[event.audit_id] = replace(found[event.audit_id], ended=event.stage_timestamp.timestamp())
    return list(found.values())


def parse(lines: Iterable[bytes]) -> list[Request]:
    """Read events of level Metadata, one JSON object a line; watches and what has no answer yet are left out."""
    found = []
    for line in lines:
        event = _DECODER.decode(line)
        reference = event.object_ref
        if event.stage != "ResponseComplete" or event.verb == "watch" or reference is None:
            continue
        found.append(
            Request(
                actor=actor(event.user.username, event.user_agent),
                verb=event.verb,
                resource="/".join(filter(None, (reference.resource, reference.subresource))),
                namespace=reference.namespace,
                name=reference.name,
                code=event.response_status.code if event.response_status is not None else 0,
                received=event.request_received_timestamp.timestamp(),
                answered=event.stage_timestamp.timestamp(),
                pod=next(iter(event.user.extra.get(_POD, ())), ""),
            )
        )
    return found


def actor(user: str, agent: str) -> str:
    """Who asked: a controller by its service account, a program by the name that it gives itself."""
    if user.startswith(_ACCOUNTS):
        return user.removeprefix(_ACCOUNTS)
    if user.startswith("system:kube-"):
        return user.removeprefix("system:")
    name = agent.split("/", 1)[0]
    # aiohttp names Python, and only the operator leaves it so.
    return {"Python": "inference-operator", "kopf": "inference-operator"}.get(name, name)


def writes(requests: Iterable[Request]) -> Counter[tuple[str, str, str]]:
    """Write requests by actor, verb and resource, refused ones too, without Leases and events."""
    return Counter((r.actor, r.verb, r.resource) for r in requests if r.writes and r.resource not in _QUIET)


def events(requests: Iterable[Request]) -> int:
    """How many events were written."""
    return sum(r.writes and r.resource == "events" for r in requests)


def by_name(requests: Iterable[Request], verb: str, resource: str, *, last: bool = False) -> dict[str, Request]:
    """The first (or last) request of a kind that succeeded, by object."""
    chosen: Callable[[float, float], bool] = (lambda new, old: new > old) if last else (lambda new, old: new < old)
    found: dict[str, Request] = {}
    for r in requests:
        if r.verb == verb and r.resource == resource and r.succeeded:
            known = found.get(r.name)
            if known is None or chosen(r.answered, known.answered):
                found[r.name] = r
    return found
