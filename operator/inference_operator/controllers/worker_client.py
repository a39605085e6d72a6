"""Asking worker pods how they stand, and handing tasks to warm ones."""

from functools import lru_cache
from typing import TypeVar

import msgspec
from yarl import URL

from inference_operator.errors import WorkerUnreachableError
from inference_operator.kube.leaderelection import Leadership
from inference_operator.runtime.bounded_http import BoundedHttp, HttpFaultError
from inference_protocol.messages import (
    HTTP_PORT,
    TASK_STOP_PATH,
    TASK_WAIT_PATH,
    TASKS_PATH,
    TELEMETRY_PATH,
    TaskOrder,
    TaskQuery,
    TaskState,
    Telemetry,
    encode,
)

T = TypeVar("T")

# A worker that takes longer than this is busy or gone; the next round asks again.
_TELEMETRY_SECONDS = 1.0
_ORDER_SECONDS = 5.0
# Telemetry at its bounds: a sketch of 16 KB, 65 tasks of 400 bytes, the digests of 1,024 models in 75 KB.
_LONGEST_TELEMETRY_BYTES = 1 << 18
# A state with its report: a message and answers in place of 4 KB each, all of which JSON may have to escape.
_LONGEST_STATE_BYTES = 1 << 16


class WorkerHttpClient:
    """A WorkerClient over plain HTTP inside the cluster. Orders and stops are the leader's alone, and carry its epoch."""

    def __init__(self, http: BoundedHttp, leadership: Leadership) -> None:
        self._http = http
        self._leadership = leadership
        self._decoder = msgspec.json.Decoder(Telemetry)
        self._task_decoder = msgspec.json.Decoder(TaskState)

    async def telemetry(self, address: str) -> Telemetry | None:
        """See WorkerClient."""
        try:
            url = _url(address, TELEMETRY_PATH, HTTP_PORT)
            answer = await self._http.get(url, seconds=_TELEMETRY_SECONDS, most_bytes=_LONGEST_TELEMETRY_BYTES)
            return _decoded(self._decoder, answer.body) if answer.status == 200 else None
        except (HttpFaultError, ValueError):
            return None

    async def order(self, address: str, token: str, order: TaskOrder) -> TaskState:
        """See WorkerClient."""
        seconds = min(_ORDER_SECONDS, self._leadership.seconds_left())
        ours = msgspec.structs.replace(order, epoch=self._leadership.epoch)
        state = await self._post(address, TASKS_PATH, token, ours, seconds)
        if state is None:
            raise WorkerUnreachableError(f"{address} takes no tasks")
        return state

    async def wait(self, address: str, token: str, query: TaskQuery) -> TaskState | None:
        """See WorkerClient."""
        return await self._post(address, TASK_WAIT_PATH, token, query, query.seconds + _ORDER_SECONDS)

    async def stop(self, address: str, token: str, query: TaskQuery) -> TaskState | None:
        """See WorkerClient."""
        seconds = min(_ORDER_SECONDS, self._leadership.seconds_left())
        ours = msgspec.structs.replace(query, epoch=self._leadership.epoch)
        return await self._post(address, TASK_STOP_PATH, token, ours, seconds)

    async def _post(self, address: str, path: str, token: str, body: TaskOrder | TaskQuery, seconds: float) -> TaskState | None:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            answer = await self._http.post(
                _url(address, path, HTTP_PORT), encode(body), headers=headers, seconds=seconds, most_bytes=_LONGEST_STATE_BYTES
            )
            if answer.status == 404:
                return None
            if answer.status != 200:
                words = answer.body[:200].decode(errors="replace")
                raise WorkerUnreachableError(f"{address}{path} answered {answer.status}: {words}")
            return _decoded(self._task_decoder, answer.body)
        except HttpFaultError as error:
            raise WorkerUnreachableError(f"{address}{path}: {error}") from error
        except ValueError as error:
            raise WorkerUnreachableError(f"{address}{path}: {type(error).__name__}: {error}") from error


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Raises ValueError for whatever is no such record."""
    try:
        return decoder.decode(body)
    except RecursionError as error:
        # Fields that are not known are read too, however deep.
        raise ValueError("nested too deep") from error


# Each worker is asked every second, and reading an address is a tenth of what a question costs.
@lru_cache(maxsize=8192)
def _url(address: str, path: str, port: int) -> URL:
    host = f"[{address}]" if ":" in address else address
    return URL(f"http://{host}:{port}{path}")
