"""Asking worker pods how they stand, and handing tasks to warm ones."""

from functools import lru_cache

import aiohttp
import msgspec
from yarl import URL

from inference_operator.errors import WorkerUnreachableError
from inference_operator.kube.leaderelection import Leadership
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

# A worker that takes longer than this is busy or gone; the next round asks again.
_ORDER_SECONDS = 5.0
_LONGEST_BYTES = 1 << 18
_TIMEOUT = aiohttp.ClientTimeout(total=1.0)


class WorkerHttpClient:
    """A WorkerClient over plain HTTP inside the cluster. Orders and stops are the leader's alone, and carry its epoch."""

    def __init__(self, session: aiohttp.ClientSession, leadership: Leadership) -> None:
        self._session = session
        self._leadership = leadership
        self._decoder = msgspec.json.Decoder(Telemetry)
        self._task_decoder = msgspec.json.Decoder(TaskState)

    async def telemetry(self, address: str) -> Telemetry | None:
        """See WorkerClient."""
        try:
            async with self._session.get(_url(address, TELEMETRY_PATH, HTTP_PORT), timeout=_TIMEOUT) as response:
                if response.status != 200:
                    return None
                # A worker's word is not trusted, its length neither.
                if response.content_length is None or response.content_length > _LONGEST_BYTES:
                    return None
                return self._decoder.decode(await response.read())
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
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
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            url = _url(address, path, HTTP_PORT)
            async with self._session.post(url, data=encode(body), headers=headers, timeout=timeout) as response:
                answer = await response.read()
                if response.status == 404:
                    return None
                if response.status != 200:
                    raise WorkerUnreachableError(
                        f"{address}{path} answered {response.status}: {answer[:200].decode(errors='replace')}"
                    )
                return self._task_decoder.decode(answer)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise WorkerUnreachableError(f"{address}{path}: {type(error).__name__}: {error}") from error


# Each worker is asked every second, and reading an address is a tenth of what a question costs.
@lru_cache(maxsize=8192)
def _url(address: str, path: str, port: int) -> URL:
    host = f"[{address}]" if ":" in address else address
    return URL(f"http://{host}:{port}{path}")
