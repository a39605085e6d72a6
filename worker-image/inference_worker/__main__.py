"""`python -m inference_worker`: one model, one job. Configuration comes in the environment, last words go to the kubelet."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import uvloop

from inference_protocol.messages import (
    CONFIG_VARIABLE,
    HTTP_PORT,
    VOLUME_ROOT,
    Latency,
    TerminationReport,
    WorkerConfig,
    encode_report,
)
from inference_protocol.reasons import WorkerReason
from inference_protocol.sketch import LatencySketch
from inference_worker.batch.task import Task
from inference_worker.errors import WorkerError
from inference_worker.life import Life, Loaded, load
from inference_worker.runner import Runner
from inference_worker.serve.http import Connections, HttpProtocol
from inference_worker.serve.routes import Routes

log = logging.getLogger("inference_worker")

T = TypeVar("T")

TERMINATION_PATH_VARIABLE = "INFERENCE_TERMINATION_PATH"
_EXIT_RETRY, _EXIT_PERMANENT = 1, 2
# Endpoints keep sending for a moment after a pod is marked for deletion; leaving at once would refuse those callers.
_LINGER_SECONDS = 2.0
_REFUSAL_SECONDS = 2.0


async def serve(life: Life, stop: asyncio.Event, root: Path, port: int) -> TerminationReport:
    """Serve from the first moment (probes tell the truth), load the model, then run the task or wait for the end."""
    routes = Routes(life)
    connections = Connections()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HttpProtocol(routes.handle, connections), "0.0.0.0", port)  # noqa: S104
    try:
        engine, facts = await _in_thread(lambda: load(life.config, root=root))
        life.loaded = Loaded(engine, Runner(engine), facts)
        log.info("ready: %s on %s after %.2f s", life.config.model.name, engine.provider, facts.load_seconds + facts.warmup_seconds)
        if life.config.task is not None:
            return await _run_task(life, stop, root)
        await stop.wait()
        return await _drain(life, server, connections)
    finally:
        server.close()


async def _drain(life: Life, server: asyncio.Server, connections: Connections) -> TerminationReport:
    """Not ready any more, but still answering: first to all who come, then to those who are there."""
    life.draining = connections.draining = True
    await asyncio.sleep(_LINGER_SECONDS)
    server.close()
    late = await connections.drained(life.config.drain_seconds)
    facts = life.loaded.facts if life.loaded is not None else None
    if late and life.loaded is not None:
        # Whoever still waits is told so, which is more than a closed connection tells.
        life.loaded.runner.close()
        await connections.drained(_REFUSAL_SECONDS)
        text = f"told to stop; {late} callers still waited after {life.config.drain_seconds:g} s and were refused"
        return TerminationReport("Drained", text, model=facts)
    return TerminationReport("Drained", "told to stop; every request that was received is answered", model=facts)


async def _in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a daemon thread: unlike an executor's, it does not hold the process back when it has to end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def run() -> None:
        result, fault = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 -- handed on to whoever waits
            fault = error
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, fault)

    threading.Thread(target=run, name="loading", daemon=True).start()
    return await future


async def _run_task(life: Life, stop: asyncio.Event, root: Path) -> TerminationReport:
    assert life.config.task is not None and life.loaded is not None
    task = Task(life.config, life.config.task, life.loaded.engine, digest=life.loaded.facts.digest, root=root)
    life.task = task
    running = asyncio.create_task(_in_thread(task.run))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    life.draining = stop.is_set()
    task.stop()
    inline = await running
    outcome = "Succeeded" if task.finished else "Drained"
    done = task.progress.completed if task.progress else 0
    return TerminationReport(
        "Succeeded" if outcome == "Succeeded" else "Drained",
        f"{done} items are answered" + ("" if task.finished else "; told to stop, a later attempt goes on from there"),
        model=life.facts,
        progress=task.progress,
        latency=latency_of(task.sketch),
        output=inline or None,
    )


def latency_of(sketch: LatencySketch) -> Latency | None:
    """Quantiles in milliseconds; None when nothing ran."""
    p50, p95, p99 = (sketch.quantile(q) for q in (0.5, 0.95, 0.99))
    if p50 is None or p95 is None or p99 is None:
        return None
    return Latency(p50=p50 * 1e3, p95=p95 * 1e3, p99=p99 * 1e3, count=sketch.total)


def _configure() -> WorkerConfig:
    text = os.environ.get(CONFIG_VARIABLE)
    if text is None:
        raise WorkerError(WorkerReason.INTERNAL, f"{CONFIG_VARIABLE} is not set; workers are started by the operator")
    try:
        return msgspec.json.decode(text, type=WorkerConfig)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise WorkerError(WorkerReason.INTERNAL, f"{CONFIG_VARIABLE}: {error}") from error


async def _main(life: Life, root: Path, port: int) -> TerminationReport:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    working = asyncio.create_task(serve(life, stop, root, port))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not working.done() and life.loaded is None:
        # Told to stop while loading: there is nothing to drain, and loading can't be interrupted.
        return TerminationReport("Drained", "told to stop before the model was loaded")
    return await working


def run(root: Path, port: int) -> tuple[TerminationReport, int]:
    """Run the worker to its end: its last words and its exit code. A failed one still tells what it had found out."""
    life: Life | None = None
    try:
        life = Life(_configure())
        return uvloop.run(_main(life, root, port)), 0
    except WorkerError as error:
        log.error("%s: %s", error.reason, error.message)
        reason, message = error.reason, error.message
        code = _EXIT_PERMANENT if error.permanent else _EXIT_RETRY
    except Exception as error:
        log.exception("the worker failed")
        reason, message, code = WorkerReason.INTERNAL, f"{type(error).__name__}: {error}", _EXIT_RETRY
    facts = life.facts if life is not None else None
    progress = life.task.progress if life is not None and life.task is not None else None
    return TerminationReport("Failed", message, reason=reason, model=facts, progress=progress), code


def main() -> int:
    """Run the worker, leave the report where the kubelet reads it, and return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    root = Path(os.environ.get("INFERENCE_VOLUME_ROOT", VOLUME_ROOT))
    report, code = run(root, int(os.environ.get("INFERENCE_HTTP_PORT", HTTP_PORT)))
    path = Path(os.environ.get(TERMINATION_PATH_VARIABLE, "/dev/termination-log"))
    with contextlib.suppress(OSError):
        path.write_bytes(encode_report(report))
    return code


if __name__ == "__main__":
    # Not sys.exit: a loading thread that can't be interrupted would hold the process back.
    exit_code = main()
    logging.shutdown()
    os._exit(exit_code)
