"""The one thread that runs the model, and the bounded queue in front of it."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus

from inference_protocol.sketch import LatencySketch
from inference_worker.engine import Engine, Tensor, Tensors
from inference_worker.errors import RequestError

QUEUE_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that one request waited and computed."""

    queue: float
    compute: float


class Runner:
    """Runs requests one after another in its own thread, so that the event loop stays free to answer probes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="runner")
        self._waiting = 0
        self._closed = False
        self.sketch = LatencySketch()

    @property
    def waiting(self) -> int:
        """Requests that wait or run."""
        return self._waiting

    async def infer(self, feeds: Tensors, outputs: tuple[str, ...]) -> tuple[dict[str, Tensor], Timing]:
        """Run one request. Raises RequestError: 429 when the queue is full, 400 for refused feeds, 503 and 500 for faults."""
        if self._closed:
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the worker is going away; ask again")
        if self._waiting >= QUEUE_LIMIT:
            raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, f"{QUEUE_LIMIT} requests wait already; try again later")
        arrived = time.perf_counter()
        self._waiting += 1
        try:
            answers, begun, ended = await asyncio.get_running_loop().run_in_executor(self._executor, self._timed, feeds, outputs)
        except asyncio.CancelledError:
            if not self._closed:
                raise
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the worker is going away; ask again") from None
        except ValueError as error:
            raise RequestError(HTTPStatus.BAD_REQUEST, f"the model refused the request: {error}") from error
        except MemoryError as error:
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, f"no memory for this request: {error}") from error
        except RuntimeError as error:
            raise RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, f"the model failed: {error}") from error
        finally:
            self._waiting -= 1
        self.sketch.record(time.perf_counter() - arrived)
        return answers, Timing(queue=begun - arrived, compute=ended - begun)

    def close(self) -> None:
        """Refuse everything that waits; what runs may end."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _timed(self, feeds: Tensors, outputs: tuple[str, ...]) -> tuple[dict[str, Tensor], float, float]:
        begun = time.perf_counter()
        answers = self._engine.run(feeds, outputs)
        return answers, begun, time.perf_counter()
