"""A worker's routes with a cache before the batcher, and an engine by hand behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from inference_protocol.messages import AnswerCache as Told
from inference_protocol.messages import FrameReuse
from inference_worker.batching.profile import LatencyProfile
from inference_worker.cache.answers import AnswerCache
from inference_worker.cache.counts import Result
from inference_worker.serve.inference import Inference
from inference_worker.serve.routes import Routes
from inference_worker.tracing import Tracer
from inference_worker.warmup import Warm
from tests.unit.worker.scripted_engines import ALONE
from tests.unit.worker.states import a_worker_state, inferring

if TYPE_CHECKING:
    from inference_worker.engines.engine import Engine
    from inference_worker.serve.http_messages import Response
    from inference_worker.worker_state import WorkerState
    from tests.unit.worker.states import Asking

# One request a run, so that runs are told apart.
ONE_BY_ONE = Warm(ALONE, LatencyProfile({}), None, inline=False, threads=1)
HEADER = "Inference-Header-Content-Length"


class Cached:
    """The routes, and what is counted."""

    def __init__(self, state: WorkerState, told: Told) -> None:
        self.state = state
        metrics = state.metrics["net"]
        self.cache = AnswerCache(told, metrics)
        self.routes = Routes(state, Inference(Tracer({}), self.cache))
        assert metrics.cache is not None
        self.counts = metrics.cache

    def asking(self, body: bytes, **headers: str) -> Asking:
        return inferring(self.routes, body, **headers)

    async def infer(self, body: bytes, **headers: str) -> Response:
        return await self.asking(body, **headers).reply()

    @property
    def results(self) -> dict[str, int]:
        """What happened, without what did not."""
        return {str(result): self.counts.results[result] for result in Result if self.counts.results[result]}


async def a_cached(
    engine: Engine | bytes, *, frames: FrameReuse | None = None, warm: Warm | None = ONE_BY_ONE, **told: Any
) -> Cached:
    return Cached(await a_worker_state(engine, warm), Told(frames=frames, **told))


def mark_of(response: Response) -> str:
    """How the answer is marked; empty for a new one."""
    return dict(response.headers).get("inference-cache", "")


def values_of(response: Response) -> list[Any]:
    found: list[Any] = json.loads(response.body)["outputs"][0]["data"]
    return found


def binary(array: np.ndarray, datatype: str, name: str = "x", **parameters: Any) -> tuple[bytes, dict[str, str]]:
    """A request's body and headers, with one tensor behind its JSON."""
    entry = {"name": name, "datatype": datatype, "shape": list(array.shape), "parameters": {"binary_data_size": array.nbytes}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True, **parameters}}).encode()
    return head + array.tobytes(), {HEADER.lower(): str(len(head))}
