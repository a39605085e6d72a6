"""A batch task in its thread, watched from the event loop, and the last words about it."""

import asyncio

import msgspec

from inference_protocol.messages import Latency, ModelFacts, TerminationReport
from inference_protocol.reasons import WorkerReason
from inference_protocol.sketch import LatencySketch
from inference_worker.batch.task import Task
from inference_worker.errors import WorkerError
from inference_worker.threads import in_thread

LOOK_SECONDS = 1.0
"""Between two looks at whether a task's run hangs."""

_LOOKS = 10
"""So often in a row a run must be found to hang: after a pause of the whole process or machine it has as many seconds to end."""


async def run_to_end(task: Task) -> str | None:
    """Run a task to its end, or until it is stopped. Returns inline answers.

    Raises WorkerError, MODEL_HUNG among them: then its thread stays behind, and ends at its next commit should its run come back.
    """
    running = asyncio.ensure_future(in_thread(task.run, name="task"))
    looks = 0
    try:
        while not running.done():
            await asyncio.wait({running}, timeout=LOOK_SECONDS)
            why = task.hung
            looks = looks + 1 if why is not None else 0
            if looks == _LOOKS:
                task.stop()
                raise WorkerError(WorkerReason.MODEL_HUNG, f"{why}, far longer than such runs take; what is committed stays")
        return await running
    finally:
        # It has the error whose traceback has this frame.
        del running


def report_of(task: Task, inline: str | None, facts: ModelFacts | None) -> TerminationReport:
    """The last words about a task that ran to its end, or until it was stopped."""
    done = task.progress.completed if task.progress else 0
    return TerminationReport(
        "Succeeded" if task.finished else "Drained",
        f"{done} items are answered" + ("" if task.finished else "; told to stop, a later attempt goes on from there"),
        model=facts,
        progress=task.progress,
        latency=latency_of(task.sketch),
        output=inline or None,
    )


def facts_of(task: Task, facts: ModelFacts) -> ModelFacts:
    """What was measured of the model, with the task's own throughput once there is one."""
    if not task.sketch.total or not task.compute_seconds:
        return facts
    return msgspec.structs.replace(facts, items_per_second=task.sketch.total / task.compute_seconds)


def latency_of(sketch: LatencySketch) -> Latency | None:
    """Quantiles in milliseconds; None when nothing ran."""
    p50, p95, p99 = (sketch.quantile(q) for q in (0.5, 0.95, 0.99))
    if p50 is None or p95 is None or p99 is None:
        return None
    return Latency(p50=p50 * 1e3, p95=p95 * 1e3, p99=p99 * 1e3, count=sketch.total)
