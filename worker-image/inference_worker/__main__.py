"""`python -m inference_worker`: one model, one job. Configuration comes in the environment, last words go to the kubelet."""

# First of all: what follows takes a second to import.
from inference_worker.early import REPORT_PATH, REPORT_VARIABLE, end_when_told, open_port

if __name__ == "__main__":
    end_when_told()
_OPENED = open_port() if __name__ == "__main__" else None

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from inference_protocol.messages import (
    CONFIG_VARIABLE,
    VOLUME_ROOT,
    Rival,
    TerminationReport,
    WorkerConfig,
    encode_report,
)
from inference_protocol.reasons import WorkerReason
from inference_worker.allocator import keep_freed_memory
from inference_worker.batch.running import report_of, run_to_end
from inference_worker.batch.task import Task
from inference_worker.errors import WorkerError
from inference_worker.serve.inference import Answerer, Inference
from inference_worker.serve.listeners import Listeners, Ports, listen
from inference_worker.tasks import Tasks
from inference_worker.tracing import Tracer
from inference_worker.worker_state import WorkerState

log = logging.getLogger("inference_worker")

_EXIT_RETRY, _EXIT_PERMANENT = 1, 2
# Endpoints keep sending for a moment after a pod is marked for deletion; leaving at once would refuse those callers.
_LINGER_SECONDS = 2.0
_REFUSAL_SECONDS = 2.0
_ANSWERING = 0.3
"""The largest share of the grace that is kept for answers; until then requests may still come."""

_ANSWERS = 3.0
"""What is kept, in p99s of the answers before."""

_SWITCH_SECONDS = 100e-6
_COLLECTED_OBJECTS = 10_000


async def serve(state: WorkerState, stop: asyncio.Event, ports: Ports) -> TerminationReport:
    """Serve from the first moment (probes tell the truth), load the model, then run the task or wait for the end."""
    config = state.config
    tracer = Tracer(guarded=config.fetch_from if config.guarded_traces else None, session_header=config.session_header)
    listeners = await listen(state, Inference(tracer, _cache(state)), ports)
    try:
        await listeners.settle()
        model = await state.repository.load(state.config.model.name)
        facts = model.facts
        log.info("ready: %s on %s after %.2f s", model.name, model.engine.provider, facts.start_seconds)
        if why := model.warm.layout.why:
            log.info("requests are run one by one: %s", why)
        if model.warm.prepares:
            # The interpreter's own 5 ms, each time that a thread of a run wants it back from the event loop, is as long as a run.
            sys.setswitchinterval(_SWITCH_SECONDS)
        # What is there now stays: the collector need not walk through it again and again while requests come and go.
        gc.collect()
        gc.freeze()
        # And requests leave no cycles behind: to look for them every 700 objects would cost a tenth of the event loop's time.
        gc.set_threshold(_COLLECTED_OBJECTS)
        if state.config.task is not None:
            return await _run_task(state, stop, tracer)
        if state.config.task_token_digest:
            return await _take_tasks(state, stop, listeners, tracer)
        await _until_stopped(state, stop)
        return await _drain(state, listeners)
    finally:
        listeners.end()
        tracer.close()


def _cache(state: WorkerState) -> Answerer | None:
    """What answers from memory, where the job asks for that; nobody else pays for its import."""
    told = state.config.cache
    if told is None:
        return None
    from inference_worker.cache.answers import AnswerCache

    return AnswerCache(told, state.metrics[state.config.model.name])


async def _until_stopped(state: WorkerState, stop: asyncio.Event) -> None:
    """Wait to be told to stop. Raises the WorkerError of a worker that has failed."""
    waits = [asyncio.create_task(event.wait()) for event in (stop, state.failed)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if state.fault is not None:
        raise state.fault


async def _drain(state: WorkerState, listeners: Listeners, tasks: Tasks | None = None) -> TerminationReport:
    """Not ready any more, but still answering: first to all who come, then to those who are there.

    Callers come for as long as no other worker has taken this one's place; most of the grace is theirs.
    The ends of tasks are told for a moment longer, so that whoever waits for them hears of them.
    """
    state.drain()
    listeners.announce_end()
    if tasks is not None:
        await tasks.close()
    begun = time.monotonic()
    await _until_quiet(state)
    listeners.close()
    late = await listeners.drained(state.config.drain_seconds - (time.monotonic() - begun))
    if late:
        # Whoever still waits is told so, which is more than a closed connection tells.
        state.repository.close()
        await listeners.drained(_REFUSAL_SECONDS)
        text = f"told to stop; {late} callers still waited after {state.config.drain_seconds:g} s and were refused"
        return TerminationReport("Drained", text, model=state.facts)
    committed = "; what was under way of tasks is committed" if tasks is not None else ""
    text = f"told to stop; every request that was received is answered{committed}"
    return TerminationReport("Drained", text, model=state.facts)


def _answering(state: WorkerState) -> float:
    """Seconds of the grace that the last answers may need, by how long answers took: quick ones leave more to callers."""
    most, took = _ANSWERING * state.config.drain_seconds, state.answered_within(0.99)
    return most if took is None else min(most, max(_LINGER_SECONDS, _ANSWERS * took))


async def _until_quiet(state: WorkerState) -> None:
    """Wait until nobody has asked for a while, or the last answers need the rest of the grace."""
    begun = heard = time.monotonic()
    asked = state.asked
    while (now := time.monotonic()) - heard < _LINGER_SECONDS:
        if now - begun >= max(_LINGER_SECONDS, state.config.drain_seconds - _answering(state)):
            return
        await asyncio.sleep(_LINGER_SECONDS / 20)
        if state.asked != asked:
            asked, heard = state.asked, time.monotonic()


async def _run_task(state: WorkerState, stop: asyncio.Event, tracer: Tracer) -> TerminationReport:
    model = state.model
    assert state.config.task is not None and model is not None
    task = Task(state.config, state.config.task, model.engine, model.warm, digest=model.facts.digest, root=state.root)
    state.task = task
    ended = tracer.attempt(state.config)
    running = asyncio.create_task(run_to_end(task))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        state.drain()
    task.stop()
    try:
        report = report_of(task, await running, state.facts)
    except WorkerError as error:
        ended(TerminationReport("Failed", error.message, reason=error.reason, progress=task.progress))
        raise
    ended(report)
    return report


async def _take_tasks(state: WorkerState, stop: asyncio.Event, listeners: Listeners, tracer: Tracer) -> TerminationReport:
    """Do what is ordered, and answer requests, until told to stop."""
    tasks = state.take_tasks(tracer)
    doing = asyncio.create_task(tasks.run())
    try:
        await _until_stopped(state, stop)
        return await _drain(state, listeners, tasks)
    finally:
        doing.cancel()


def _configure() -> WorkerConfig:
    text = os.environ.get(CONFIG_VARIABLE)
    if text is None:
        raise WorkerError(WorkerReason.INTERNAL, f"{CONFIG_VARIABLE} is not set; workers are started by the operator")
    try:
        return msgspec.json.decode(text, type=WorkerConfig)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise WorkerError(WorkerReason.INTERNAL, f"{CONFIG_VARIABLE}: {error}") from error


async def _main(state: WorkerState, ports: Ports) -> TerminationReport:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    working = asyncio.create_task(serve(state, stop, ports))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not working.done() and not state.loaded:
        # Told to stop while loading: there is nothing to drain, and loading can't be interrupted.
        return TerminationReport("Drained", "told to stop before the model was loaded")
    return await working


def run(root: Path, ports: Ports) -> tuple[TerminationReport, int]:
    """Run the worker to its end: its last words and its exit code. A failed one still tells what it had found out."""
    state: WorkerState | None = None
    rival: Rival | None = None
    try:
        state = WorkerState(_configure(), root=root)
        return uvloop.run(_main(state, ports)), 0
    except WorkerError as error:
        log.error("%s: %s", error.reason, error.message)
        reason, message, rival = error.reason, error.message, error.rival
        code = _EXIT_PERMANENT if error.permanent else _EXIT_RETRY
    except Exception as error:
        log.exception("the worker failed")
        reason, message, code = WorkerReason.INTERNAL, f"{type(error).__name__}: {error}", _EXIT_RETRY
    facts = state.facts if state is not None else None
    progress = state.task.progress if state is not None and state.task is not None else None
    return TerminationReport("Failed", message, reason=reason, model=facts, progress=progress, rival=rival), code


def main() -> int:
    """Run the worker, leave the report where the kubelet reads it, and return the exit code."""
    keep_freed_memory()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    root = Path(os.environ.get("INFERENCE_VOLUME_ROOT", VOLUME_ROOT))
    report, code = run(root, Ports.of(os.environ, opened=_OPENED))
    path = Path(os.environ.get(REPORT_VARIABLE, REPORT_PATH))
    with contextlib.suppress(OSError):
        path.write_bytes(encode_report(report))
    return code


if __name__ == "__main__":
    # Not sys.exit: a loading thread that can't be interrupted would hold the process back.
    exit_code = main()
    logging.shutdown()
    os._exit(exit_code)
