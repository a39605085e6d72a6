"""gRPC's health checking protocol (grpc/grpc, doc/health-checking.md): what probes, load balancers and clients ask for.

The worker as a whole ("") and its one service are what can be asked for; both serve while the worker is ready.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from google.protobuf.message import DecodeError

from inference_worker.errors import RequestError
from inference_worker.serve.ask import bad
from inference_worker.serve.background import Background
from inference_worker.serve.grpc_calls import Call, Method
from inference_worker.serve.grpc_streams import WatchCall
from inference_worker.serve.http_messages import Payload
from inference_worker.serve.message_size import small
from inference_worker.serve.message_tables import Table
from inference_worker.serve.messages import SERVICE as INFERENCE_SERVICE

PACKAGE = "grpc.health.v1"
SERVICE = f"{PACKAGE}.Health"
LOOK_SECONDS = 0.25
"""How often the watched state is looked at: none of what makes a worker ready tells of its changes."""

_UNKNOWN, _SERVING, _NOT_SERVING = "SERVICE_UNKNOWN", "SERVING", "NOT_SERVING"
_TABLE = Table(
    "grpc/health/v1/health.proto",
    PACKAGE,
    """
HealthCheckRequest: service 1 string
HealthCheckResponse: status 1 %HealthCheckResponse.ServingStatus
HealthListRequest
HealthListResponse: statuses 1 ->HealthCheckResponse
""",
    enums={"HealthCheckResponse.ServingStatus": ("UNKNOWN", _SERVING, _NOT_SERVING, _UNKNOWN)},
    services={
        "Health": """
Check HealthCheckRequest HealthCheckResponse
List HealthListRequest HealthListResponse
Watch HealthCheckRequest *HealthCheckResponse
"""
    },
)
_TABLE.add()
_Request, _Response, _ListResponse = (
    _TABLE.message(name) for name in ("HealthCheckRequest", "HealthCheckResponse", "HealthListResponse")
)
_SERVICES = ("", INFERENCE_SERVICE)


class Health:
    """Answers by `serving`. Those who watch are told of a change within LOOK_SECONDS."""

    def __init__(self, serving: Callable[[], bool], background: Background) -> None:
        self._serving = serving
        self._background = background
        self._watching: dict[WatchCall, tuple[str, str]] = {}
        self.methods: dict[str, Method] = {f"/{SERVICE}/Check": self._check, f"/{SERVICE}/List": self._list}

    def _status(self, service: str) -> str:
        if service not in _SERVICES:
            return _UNKNOWN
        return _SERVING if self._serving() else _NOT_SERVING

    def _check(self, call: Call, payload: Payload) -> None:
        service = _asked(call, payload)
        if service is None:
            return
        status = self._status(service)
        if status == _UNKNOWN:
            call.fail(RequestError(HTTPStatus.NOT_FOUND, f"unknown service {service[:200]!r}; ask for {INFERENCE_SERVICE} or ''"))
        else:
            call.answer(_Response(status=status).SerializeToString())

    def _list(self, call: Call, _: Payload) -> None:
        statuses = {service: _Response(status=self._status(service)) for service in _SERVICES}
        call.answer(_ListResponse(statuses=statuses).SerializeToString())

    def watch(self, call: WatchCall, payload: Payload) -> None:
        """Tell how a service stands, now and whenever that changes, for as long as the caller listens."""
        service = _asked(call, payload)
        if service is None:
            return
        alone = not self._watching
        self._watching[call] = (service, "")
        call.on_abandoned = lambda: self._forget(call)
        self._tell(call)
        if alone:
            self._background.spawn(self._look())

    def _forget(self, call: WatchCall) -> None:
        self._watching.pop(call, None)

    def _tell(self, call: WatchCall) -> None:
        service, told = self._watching[call]
        # One that does not read what it was told hears of the latest when it does.
        if (status := self._status(service)) != told and not call.held_back:
            self._watching[call] = (service, status)
            call.tell(_Response(status=status).SerializeToString())

    async def _look(self) -> None:
        while self._watching:
            await asyncio.sleep(LOOK_SECONDS)
            for call in list(self._watching):
                if call in self._watching:
                    self._tell(call)


def _asked(call: Call, payload: Payload) -> str | None:
    try:
        service: str = _Request.FromString(small(payload)).service
    except DecodeError as error:
        call.fail(bad(f"the message is no HealthCheckRequest: {error}"))
        return None
    except RequestError as error:
        call.fail(error)
        return None
    return service
