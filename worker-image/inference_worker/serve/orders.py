"""How a warm worker is handed tasks over HTTP: by whoever has its token, and by nobody else."""

import hashlib
import hmac
from http import HTTPStatus
from typing import TypeVar

import msgspec

from inference_protocol.messages import TaskOrder, TaskQuery, TaskState, encode
from inference_worker.errors import RequestError
from inference_worker.serve.http_messages import Request, Response
from inference_worker.tasks import Tasks
from inference_worker.worker_state import WorkerState

_BODY_LIMIT_BYTES = 256 << 10

R = TypeVar("R", TaskOrder, TaskQuery)


def order(state: WorkerState, request: Request) -> Response:
    """Take an order. Raises RequestError."""
    tasks = _allowed(state, request)
    wanted = _decoded(request, TaskOrder)
    _require_newest(tasks, wanted)
    if tasks.full:
        why = "this worker is stopping" if state.draining else "this worker's queue is full"
        raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, why, retry_after_seconds=1.0)
    return _told(tasks.order(wanted))


async def wait(state: WorkerState, request: Request) -> Response:
    """Wait for a task's end. Raises RequestError."""
    tasks = _allowed(state, request)
    asked = _decoded(request, TaskQuery)
    return _told(await tasks.wait((asked.uid, asked.attempt), asked.seconds))


def stop(state: WorkerState, request: Request) -> Response:
    """Stop a task. Raises RequestError."""
    tasks = _allowed(state, request)
    asked = _decoded(request, TaskQuery)
    _require_newest(tasks, asked)
    return _told(tasks.stop((asked.uid, asked.attempt)))


def _allowed(state: WorkerState, request: Request) -> Tasks:
    expected = state.config.task_token_digest
    if not expected:
        raise RequestError(HTTPStatus.NOT_FOUND, "this worker was started for one job and takes no tasks")
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    given = hashlib.sha256(token.encode()).hexdigest()
    if kind.lower() != "bearer" or not hmac.compare_digest(given, expected):
        raise RequestError(HTTPStatus.UNAUTHORIZED, "tasks are ordered with this worker's bearer token")
    if state.tasks is None:
        raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the model is still loading", retry_after_seconds=1.0)
    return state.tasks


def _require_newest(tasks: Tasks, told: TaskOrder | TaskQuery) -> None:
    """Raise RequestError where an operator of a later epoch has given orders: whoever asks was paused, and leads no longer."""
    if not tasks.admits(told.epoch):
        raise RequestError(HTTPStatus.CONFLICT, "another operator has led since; this one's Lease is lost")


def _decoded(request: Request, kind: type[R]) -> R:
    if len(request.body) > _BODY_LIMIT_BYTES:
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"an order has at most {_BODY_LIMIT_BYTES} bytes")
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"the body is no {kind.__name__}: {error}") from error


def _told(state: TaskState | None) -> Response:
    if state is None:
        raise RequestError(HTTPStatus.NOT_FOUND, "this task was never ordered here, or its end is long past")
    return Response(HTTPStatus.OK, encode(state))
