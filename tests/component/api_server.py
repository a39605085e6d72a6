"""A small API server to be scripted: it stores, lists in pages and streams like the real one, and misbehaves when told to.

It knows no schema and no admission. A `Script` steps in before a request is carried out; the journal keeps every request.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from aiohttp import web

from tests.component.kinds import KINDS, Kind, Raw, discovery, kind_of, locate
from tests.loopback import free_ports

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    # Carries the request out and returns the answer: a script calls it, or not, when it likes.
    Carry = Callable[[], Raw]
    Act = Callable[["Call", Carry], Awaitable[Raw]]

Name = tuple[str, str]
# A tenth of the real server's: streams on quiet kinds get their bookmarks while a test still runs.
_BOOKMARK_SECONDS = 1.0
# The chart makes both empty, for the operator may create none.
TASK_KEY: Raw = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "inference-operator-task-key", "namespace": "operator-system"},
}
_AUTHORITY: Raw = {**TASK_KEY, "metadata": {"name": "inference-operator-authority", "namespace": "operator-system"}}
_EXPIRED = "The provided continue parameter is too old to display a consistent list result."


@dataclass
class Call:
    """One request, and what was answered (0 when the connection was cut instead)."""

    method: str
    path: str
    query: dict[str, str]
    body: Raw
    who: str
    time: float
    status: int | None = None
    # The Content-Type: how a patch is meant.
    kind: str = ""

    @property
    def is_write(self) -> bool:
        return self.method not in ("GET", "HEAD")

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


class RefusalError(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, reason: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.retry_after = code, reason, retry_after

    def status(self) -> Raw:
        return {
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "code": self.code,
            "reason": self.reason,
            "message": str(self),
        }


class ConnectionCutError(Exception):
    """The script wants the connection to break instead of an answer."""


@dataclass
class Script:
    """Steps in for matching requests, `times` times. `act` answers, raises RefusalError, or raises ConnectionCutError."""

    matches: Callable[[Call], bool]
    act: Act
    times: int | None = None
    used: int = 0


@dataclass
class Stream:
    """One open watch."""

    call: Call
    namespace: str
    queue: asyncio.Queue[Raw | None] = field(default_factory=asyncio.Queue)
    transport: asyncio.BaseTransport | None = None

    def wants(self, obj: Raw) -> bool:
        return self.namespace in ("", obj["metadata"].get("namespace", "")) and _selected(obj, self.call.query)


@dataclass
class Shelf:
    """The objects of one kind, and how they changed."""

    kind: Kind
    objects: dict[Name, Raw] = field(default_factory=dict)
    history: deque[tuple[int, Raw]] = field(default_factory=deque)
    floor: int = 0
    streams: list[Stream] = field(default_factory=list)
    # While held, changes are stored but no stream tells of them; dropped ones are never told.
    held: list[tuple[int, Raw]] | None = None
    drops: bool = False


class ApiServer:
    """Start it, give `url` to the operator, change objects as a user would, and read the journal."""

    def __init__(self) -> None:
        self.shelves = {kind: Shelf(kind) for kind in KINDS}
        self.journal: list[Call] = []
        self.scripts: list[Script] = []
        self.absent_groups: set[str] = set()
        self.on_created: list[Callable[[Raw], None]] = []
        self._version = 1000
        self._pages: dict[str, list[Raw]] = {}
        self._runner: web.AppRunner | None = None
        (self._port,) = free_ports(1)
        # As the chart makes it: empty, for the operator to fill.
        self.create(TASK_KEY)
        self.create(_AUTHORITY)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    # life

    async def start(self) -> None:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()

    async def stop(self) -> None:
        """Go down with all connections; the objects stay. A later start takes the same port."""
        for shelf in self.shelves.values():
            self._cut(shelf, abrupt=True)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # the script

    def script(self, method: str, path: str, act: Act, *, times: int | None = None) -> Script:
        """Let `act` step in for a method and paths that match a regular expression."""
        pattern = re.compile(path)
        return self.script_when(lambda c: c.method == method and pattern.search(c.path) is not None, act, times=times)

    def script_when(self, matches: Callable[[Call], bool], act: Act, *, times: int | None = None) -> Script:
        script = Script(matches, act, times)
        self.scripts.append(script)
        return script

    def calls(self, method: str, path: str) -> list[Call]:
        """Requests of the journal, without watches; several methods are joined by a bar."""
        pattern = re.compile(path)
        return [c for c in self.journal if c.method in method.split("|") and not c.is_watch and pattern.search(c.path)]

    def writes(self) -> list[Call]:
        """Every write but those to Leases, to the Secret that an operator fills once in its life, and of events (see `events`)."""
        return [c for c in self.journal if c.is_write and not any(part in c.path for part in ("/leases", "/secrets", "/events"))]

    def writes_about_models(self) -> list[Call]:
        """What was said of models: their figures, and now and then which jobs use them."""
        return [c for c in self.writes() if "/inferencemodels/" in c.path]

    def writes_for_jobs(self) -> list[Call]:
        """All other writes."""
        return [c for c in self.writes() if "/inferencemodels/" not in c.path]

    def events(self) -> list[str]:
        """The reasons of the events that were told, in order. They have an allowance of their own."""
        return [c.body["reason"] for c in self.calls("POST", "/events$")]

    # what users, kubelets and garbage collectors do

    def get(self, plural: str, name: str, namespace: str = "default") -> Raw:
        """The stored object. Raises KeyError."""
        shelf = self._shelf(plural)
        return shelf.objects[(namespace if shelf.kind.namespaced else "", name)]

    def all(self, plural: str) -> list[Raw]:
        return list(self._shelf(plural).objects.values())

    def has(self, plural: str, name: str, namespace: str = "default") -> bool:
        shelf = self._shelf(plural)
        return (namespace if shelf.kind.namespaced else "", name) in shelf.objects

    def create(self, obj: Raw) -> Raw:
        """As `kubectl create`."""
        shelf = self.shelves[kind_of(obj)]
        meta = obj["metadata"]
        return self._create(shelf, meta.get("namespace", "default") if shelf.kind.namespaced else "", obj)

    def update(self, plural: str, name: str, change: Callable[[Raw], None], namespace: str = "default") -> Raw:
        """Change a stored object in place; a changed spec raises the generation."""
        shelf = self._shelf(plural)
        key = (namespace if shelf.kind.namespaced else "", name)
        new = copy.deepcopy(shelf.objects[key])
        change(new)
        return self._store(shelf, key, new)

    def delete(self, plural: str, name: str, namespace: str = "default", *, orphan: bool = False) -> None:
        """Delete at once, and all that it owned; orphans are those that the garbage collector has not come to yet."""
        shelf = self._shelf(plural)
        key = (namespace if shelf.kind.namespaced else "", name)
        gone = shelf.objects.pop(key)
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self._next())}}
        self._tell(shelf, "DELETED", gone)
        for other in () if orphan else self.shelves.values():
            for (ns, child), obj in list(other.objects.items()):
                if any(r["uid"] == gone["metadata"]["uid"] for r in obj["metadata"].get("ownerReferences", [])):
                    self.delete(other.kind.plural, child, ns)

    # streams

    def hold(self, plural: str) -> None:
        """Let streams fall behind: nothing is told until `release`."""
        self._shelf(plural).held = []

    def release(self, plural: str) -> None:
        """Tell what was held back."""
        shelf = self._shelf(plural)
        held, shelf.held = shelf.held or [], None
        for version, event in held:
            self._send(shelf, version, event)

    def drop_events(self, plural: str, *, drops: bool = True) -> None:
        """Lose events for good, as a broken watch cache would."""
        self._shelf(plural).drops = drops

    def cut(self, plural: str, *, abrupt: bool = True, who: str = "") -> None:
        """Break the kind's streams: by a reset, or by a clean end as at the server's timeout."""
        self._cut(self._shelf(plural), abrupt=abrupt, who=who)

    def compact(self, plural: str) -> None:
        """Forget the history: streams that resume from before now get 410."""
        shelf = self._shelf(plural)
        shelf.history.clear()
        shelf.floor = self._next()

    def inject(self, plural: str, event: Raw, *, who: str = "") -> None:
        """Put an event of the test's own making into the open streams, of one operator or of all."""
        for stream in filter(lambda s: who in ("", s.call.who), self._shelf(plural).streams):
            stream.queue.put_nowait(event)

    def streams(self, plural: str) -> int:
        return len(self._shelf(plural).streams)

    # inside

    def _shelf(self, plural: str) -> Shelf:
        return next(shelf for kind, shelf in self.shelves.items() if kind.plural == plural)

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _create(self, shelf: Shelf, namespace: str, body: Raw) -> Raw:
        obj = copy.deepcopy(body)
        key = (namespace, obj["metadata"]["name"])
        if key in shelf.objects:
            raise RefusalError(409, "AlreadyExists", f"{shelf.kind.plural} {key[1]!r} already exists")
        meta = obj["metadata"]
        if shelf.kind.namespaced:
            meta["namespace"] = namespace
        meta.update(uid=str(uuid.uuid4()), generation=1, creationTimestamp=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        if shelf.kind.plural == "pods":
            obj.setdefault("status", {"phase": "Pending"})
        stored = self._store(shelf, key, obj)
        for hook in self.on_created:
            hook(copy.deepcopy(stored))
        return stored

    def _store(self, shelf: Shelf, key: Name, new: Raw) -> Raw:
        old = shelf.objects.get(key)
        if old is not None and old == new:
            return copy.deepcopy(old)
        meta = new["metadata"]
        if old is not None and old.get("spec") != new.get("spec"):
            meta["generation"] = old["metadata"]["generation"] + 1
        meta["resourceVersion"] = str(self._next())
        shelf.objects[key] = copy.deepcopy(new)
        self._tell(shelf, "ADDED" if old is None else "MODIFIED", new)
        return copy.deepcopy(new)

    def _tell(self, shelf: Shelf, kind: str, obj: Raw) -> None:
        version = int(obj["metadata"]["resourceVersion"])
        if shelf.drops:
            return
        event = {"type": kind, "object": copy.deepcopy(obj)}
        shelf.history.append((version, event))
        if shelf.held is not None:
            shelf.held.append((version, event))
        else:
            self._send(shelf, version, event)

    def _send(self, shelf: Shelf, version: int, event: Raw) -> None:
        for stream in shelf.streams:
            if stream.wants(event["object"]):
                stream.queue.put_nowait(event)

    def _cut(self, shelf: Shelf, *, abrupt: bool, who: str = "") -> None:
        for stream in filter(lambda s: who in ("", s.call.who), shelf.streams):
            if abrupt and stream.transport is not None:
                stream.transport.abort()  # type: ignore[attr-defined]
            stream.queue.put_nowait(None)

    # requests

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        call = Call(
            method=request.method,
            path=request.path,
            query=dict(parse_qsl(request.query_string)),
            body=json.loads(text) if text else {},
            who=request.headers.get("Authorization", "").removeprefix("Bearer "),
            time=asyncio.get_running_loop().time(),
            kind=request.content_type,
        )
        self.journal.append(call)
        try:
            script = next((s for s in self.scripts if s.times != s.used and s.matches(call)), None)
            if script is not None:
                script.used += 1
                answer = await script.act(call, lambda: self._answer(call))
            elif call.is_watch:
                return await self._watch(call, request)
            else:
                answer = self._answer(call)
        except RefusalError as refusal:
            call.status = refusal.code
            headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after is not None else {}
            return web.json_response(refusal.status(), status=refusal.code, headers=headers)
        except ConnectionCutError:
            call.status = 0
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        call.status = 201 if call.method == "POST" else 200
        return web.json_response(answer, status=call.status)

    def _answer(self, call: Call) -> Raw:
        if (found := discovery(call.path, self.absent_groups)) is not None:
            return found
        place = locate(call.path)
        if place is None or place.kind.group in self.absent_groups:
            raise RefusalError(404, "NotFound", "the server could not find the requested resource")
        shelf = self.shelves[place.kind]
        if call.method == "POST":
            return self._create(shelf, place.namespace, call.body)
        if not place.name:
            return self._list(shelf, place.namespace, call.query)
        key = (place.namespace, place.name)
        if key not in shelf.objects:
            raise RefusalError(404, "NotFound", f"{place.kind.plural} {place.name!r} not found")
        match call.method:
            case "GET":
                return copy.deepcopy(shelf.objects[key])
            case "PUT":
                return self._replace(shelf, key, call.body)
            case "PATCH" if place.subresource == "status" and call.kind == "application/merge-patch+json":
                # Of fields that stand by themselves, as all are that are merged.
                old = copy.deepcopy(shelf.objects[key])
                return self._store(shelf, key, {**old, "status": {**old.get("status", {}), **call.body["status"]}})
            case "PATCH" if place.subresource == "status":
                return self._apply_status(shelf, key, call.body)
            case "PATCH" if place.kind.plural == "endpointslices":
                # Applied by the only one that writes it: what is left out is gone.
                metadata = {**shelf.objects[key]["metadata"], **call.body["metadata"]}
                return self._store(shelf, key, {**call.body, "metadata": metadata})
            case "DELETE":
                return self._remove(shelf, key, call.body)
        raise RefusalError(405, "MethodNotAllowed", call.method)

    def _replace(self, shelf: Shelf, key: Name, body: Raw) -> Raw:
        old = shelf.objects[key]["metadata"]
        if body["metadata"].get("resourceVersion") not in (None, old["resourceVersion"]):
            raise RefusalError(409, "Conflict", "the object has been modified; please apply your changes to the latest version")
        return self._store(shelf, key, {**body, "metadata": {**old, **body["metadata"], "uid": old["uid"]}})

    def _apply_status(self, shelf: Shelf, key: Name, body: Raw) -> Raw:
        old = shelf.objects[key]
        # As the real one (tests/cluster/test_ownership.py): on /status a wrong version is a conflict, a wrong uid is nothing.
        if body["metadata"].get("resourceVersion") not in (None, old["metadata"]["resourceVersion"]):
            raise RefusalError(409, "Conflict", "the object has been modified; please apply your changes to the latest version")
        return self._store(shelf, key, {**copy.deepcopy(old), "status": body.get("status", {})})

    def _remove(self, shelf: Shelf, key: Name, body: Raw) -> Raw:
        gone = copy.deepcopy(shelf.objects[key])
        uid = body.get("preconditions", {}).get("uid")
        if uid not in (None, gone["metadata"]["uid"]):
            raise RefusalError(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
        if shelf.kind.plural == "pods" and gone["status"].get("phase") == "Running":
            # A running pod is told to stop and stays until its kubelet is done with it.
            gone["metadata"]["deletionTimestamp"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            return self._store(shelf, key, gone)
        self.delete(shelf.kind.plural, key[1], key[0])
        return gone

    def _list(self, shelf: Shelf, namespace: str, query: dict[str, str]) -> Raw:
        limit = int(query.get("limit", "0"))
        if token := query.get("continue"):
            if token not in self._pages:
                raise RefusalError(410, "Expired", _EXPIRED)
            rest = self._pages.pop(token)
        else:
            # The whole snapshot is taken now: later pages show the same instant, as the real server's do.
            found = (o for (ns, _), o in sorted(shelf.objects.items()) if namespace in ("", ns) and _selected(o, query))
            rest = [copy.deepcopy(obj) for obj in found]
        page, rest = (rest[:limit], rest[limit:]) if limit else (rest, [])
        meta: Raw = {"resourceVersion": str(self._version)}
        if rest:
            meta["continue"] = uuid.uuid4().hex
            self._pages[meta["continue"]] = rest
        return {"apiVersion": shelf.kind.api_version, "kind": f"{shelf.kind.name}List", "metadata": meta, "items": page}

    async def _watch(self, call: Call, request: web.Request) -> web.StreamResponse:
        place = locate(call.path)
        if place is None or place.kind.group in self.absent_groups:
            raise RefusalError(404, "NotFound", "the server could not find the requested resource")
        shelf = self.shelves[place.kind]
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        stream = Stream(call, place.namespace, transport=request.transport)
        fresh = "resourceVersion" not in call.query
        since = shelf.floor if fresh else int(call.query["resourceVersion"] or 0)
        if since < shelf.floor:
            expired = RefusalError(410, "Expired", f"too old resource version: {since} ({shelf.floor})")
            stream.queue.put_nowait({"type": "ERROR", "object": expired.status()})
            stream.queue.put_nowait(None)
        held = {version for version, _ in shelf.held or []}
        # Without a version a stream begins with what there is.
        here: list[Raw] = [{"type": "ADDED", "object": copy.deepcopy(obj)} for obj in shelf.objects.values()]
        later = [event for version, event in shelf.history if version > since >= shelf.floor and version not in held]
        for event in here if fresh else later:
            if stream.wants(event["object"]):
                stream.queue.put_nowait(event)
        shelf.streams.append(stream)
        call.status = 200
        try:
            await response.prepare(request)
            while (following := await self._next_event(stream, shelf)) is not None:
                await response.write(json.dumps(following).encode() + b"\n")
        except ConnectionError:
            pass
        finally:
            shelf.streams.remove(stream)
        return response

    async def _next_event(self, stream: Stream, shelf: Shelf) -> Raw | None:
        try:
            return await asyncio.wait_for(stream.queue.get(), _BOOKMARK_SECONDS)
        except TimeoutError:
            if shelf.held:
                return {"type": "BOOKMARK", "object": _bookmark(shelf, shelf.held[0][0] - 1)}
            return {"type": "BOOKMARK", "object": _bookmark(shelf, self._version)}


def _bookmark(shelf: Shelf, version: int) -> Raw:
    return {"apiVersion": shelf.kind.api_version, "kind": shelf.kind.name, "metadata": {"resourceVersion": str(version)}}


def _selected(obj: Raw, query: dict[str, str]) -> bool:
    labels = obj["metadata"].get("labels", {})
    wanted = (pair.partition("=") for pair in filter(None, query.get("labelSelector", "").split(",")))
    return all(labels.get(key) == value for key, _, value in wanted)
