"""Asking worker pods how they stand, and handing tasks to warm ones."""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import msgspec
from yarl import URL

from inference_operator.errors import RetryableError, WorkerUnreachableError
from inference_operator.kube.leaderelection import Leadership
from inference_operator.kube.ports import WorkerAddress
from inference_operator.runtime.bounded_http import BoundedHttp, HttpFaultError, Secured
from inference_protocol.messages import (
    CONTROL_PORT,
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
    """A WorkerClient. Orders and stops are the leader's alone, and carry its epoch."""

    def __init__(self, http: BoundedHttp, leadership: Leadership, tls: Callable[[WorkerAddress], Secured] | None = None) -> None:
        """`tls` says how a worker is asked by mutual TLS; without it all go by plain HTTP."""
        self._tls = tls
        self._http = http
        self._leadership = leadership
        self._decoder = msgspec.json.Decoder(Telemetry)
        self._task_decoder = msgspec.json.Decoder(TaskState)

    async def telemetry(self, worker: WorkerAddress) -> Telemetry | None:
        """See WorkerClient."""
        try:
            url, secured = self._way(worker, TELEMETRY_PATH)
            answer = await self._http.get(url, seconds=_TELEMETRY_SECONDS, most_bytes=_LONGEST_TELEMETRY_BYTES, secured=secured)
            return _decoded(self._decoder, answer.body) if answer.status == 200 else None
        except (HttpFaultError, RetryableError, ValueError):
            return None

    async def order(self, worker: WorkerAddress, token: str, order: TaskOrder) -> TaskState:
        """See WorkerClient."""
        seconds = min(_ORDER_SECONDS, await self._leadership.sure())
        ours = msgspec.structs.replace(order, epoch=self._leadership.epoch)
        state = await self._post(worker, TASKS_PATH, token, ours, seconds)
        if state is None:
            raise WorkerUnreachableError(f"{worker.address} takes no tasks")
        return state

    async def wait(self, worker: WorkerAddress, token: str, query: TaskQuery) -> TaskState | None:
        """See WorkerClient."""
        return await self._post(worker, TASK_WAIT_PATH, token, query, query.seconds + _ORDER_SECONDS)

    async def stop(self, worker: WorkerAddress, token: str, query: TaskQuery) -> TaskState | None:
        """See WorkerClient."""
        seconds = min(_ORDER_SECONDS, await self._leadership.sure())
        ours = msgspec.structs.replace(query, epoch=self._leadership.epoch)
        return await self._post(worker, TASK_STOP_PATH, token, ours, seconds)

    def _way(self, worker: WorkerAddress, path: str) -> tuple[URL, Secured | None]:
        """How a worker is asked. Raises RetryableError while the operator has no certificate itself."""
        if self._tls is None:
            return _url("http", worker.address, path, HTTP_PORT), None
        return _url("https", worker.address, path, CONTROL_PORT), self._tls(worker)

    async def _post(
        self, worker: WorkerAddress, path: str, token: str, body: TaskOrder | TaskQuery, seconds: float
    ) -> TaskState | None:
        where = f"{worker.address}{path}"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            url, secured = self._way(worker, path)
            answer = await self._http.post(
                url, encode(body), headers=headers, seconds=seconds, most_bytes=_LONGEST_STATE_BYTES, secured=secured
            )
            if answer.status == 404:
                return None
            if answer.status != 200:
                words = answer.body[:200].decode(errors="replace")
                raise WorkerUnreachableError(f"{where} answered {answer.status}: {words}")
            return _decoded(self._task_decoder, answer.body)
        except HttpFaultError as error:
            raise WorkerUnreachableError(f"{where}: {error}") from error
        except ValueError as error:
            raise WorkerUnreachableError(f"{where}: {type(error).__name__}: {error}") from error


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Raises ValueError for whatever is no such record."""
    try:
        return decoder.decode(body)
    except RecursionError as error:
        # Fields that are not known are read too, however deep.
        raise ValueError("nested too deep") from error


# Each worker is asked every second, and reading an address is a tenth of what a question costs.
@lru_cache(maxsize=8192)
def _url(scheme: str, address: str, path: str, port: int) -> URL:
    host = f"[{address}]" if ":" in address else address
    return URL(f"{scheme}://{host}:{port}{path}")
