"""What the kubelet's probes ask, in plain HTTP on a port of its own: whatever callers' ports ask for, and however full they are."""

import asyncio
from contextlib import suppress
from http import HTTPStatus

from inference_protocol.messages import LIVE_PATH, READY_PATH, STARTED_PATH
from inference_worker.serve.background import Background
from inference_worker.serve.budget import Budget
from inference_worker.serve.connections import Connection, Connections
from inference_worker.serve.http_messages import Request, Response
from inference_worker.worker_state import WorkerState

_MOST_CONNECTIONS = 256
_BYTES = 1 << 20
# Shorter than the probe waits, so that it hears a "not yet".
_HELD_SECONDS = 290.0
_YES = Response(HTTPStatus.OK, b"ok", "text/plain")
_NO = Response(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready", "text/plain")
_NOTHING = Response(HTTPStatus.NOT_FOUND, b"probes alone are answered here", "text/plain")


class Health:
    """Answers probes from the worker's state."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._background = Background()

    def handle(self, request: Request) -> None:
        """Answer one request, now or once the model is loaded."""
        if request.method not in ("GET", "HEAD"):
            request.reply(_NOTHING)
        elif request.path == READY_PATH:
            request.reply(_YES if self._state.ready else _NO)
        elif request.path == LIVE_PATH:
            stuck = self._state.stuck
            request.reply(_YES if stuck is None else Response(HTTPStatus.SERVICE_UNAVAILABLE, stuck.encode(), "text/plain"))
        elif request.path == STARTED_PATH:
            self._background.spawn(self._started(request))
        else:
            request.reply(_NOTHING)

    async def _started(self, request: Request) -> None:
        """Answer a startup probe when the model is loaded: one question, no refusals, and no pause until the next."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._state.first_loaded.wait(), _HELD_SECONDS)
        request.reply(_YES if self._state.loaded else _NO)


class ProbeConnections(Connections):
    """They are kept: the operator asks several times a second. Whoever comes takes the place of the one that is silent longest.

    Otherwise anybody in the cluster could keep the kubelet out, which would end the worker.
    """

    def __init__(self) -> None:
        super().__init__(Budget(_BYTES), limit=_MOST_CONNECTIONS)

    def add(self, connection: Connection) -> bool:
        """See Connections."""
        if len(self.open) >= self._limit and (idle := [each for each in self.open if each.idle]):
            longest = min(idle, key=lambda each: each.used)
            longest.end_unread()
            # It hears of its end in the event loop's next round, and counts no more from now on.
            self.discard(longest)
        return super().add(connection)
