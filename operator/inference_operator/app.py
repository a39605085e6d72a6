"""The composition root: builds everything, runs it in one task group, and ends the process when any part of it ends."""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import kopf

from inference_operator.accelerator_faults import warnings_of
from inference_operator.controllers.handlers import WATCHED, register, watch_settings
from inference_operator.controllers.resync import RestoredError
from inference_operator.errors import OperatorError, RetryableError
from inference_operator.kube.client import api_session
from inference_operator.kube.connection import Connection, ConnectionConfigError, connect
from inference_operator.kube.leaderelection import LeadershipLostError
from inference_operator.kube.scope import EVERYWHERE, Namespaces
from inference_operator.observability import logs, metrics
from inference_operator.observability.health import serve_health
from inference_operator.parts import Parts, put_together
from inference_operator.runtime.bounded_http import BoundedHttp
from inference_operator.runtime.clock import Clock, ServerClock
from inference_operator.runtime.queue import WorkQueue
from inference_operator.settings import ConfigurationError, Settings, load_settings
from inference_operator.state.request import Request, job_request
from inference_operator.state.store import Store
from inference_operator.workers.template_rules import class_faults

log = logging.getLogger(__name__)

# Ten thousand jobs are a heap that a full collection takes half a second to walk through; what is made anew is young garbage.
GC_THRESHOLDS = (20_000, 20, 100)

# The exit code of a process that has lost the Lease: what it was about to do is void, and it may be a candidate again.
BEGIN_ANEW = 3

CONFIG_VARIABLE = "INFERENCE_OPERATOR_CONFIG"
NAMESPACE_VARIABLE, ADDRESS_VARIABLE = "POD_NAMESPACE", "POD_IP"


class StoppedError(Exception):
    """The process was told to stop."""


class WatchEndedError(Exception):
    """kopf's watches ended though nobody asked: the view would go stale, so the process must start anew."""


async def run(settings: Settings, connection: Connection, namespace: str, identity: str, address: str | None) -> None:
    """Run until told to stop. Raises StoppedError then, and whatever else ends a part."""
    clock = ServerClock()
    async with api_session(clock) as api, BoundedHttp() as pods:
        parts = put_together(settings, connection, namespace, identity, address, clock, api=api, pods=pods)
        runner = await serve_health(parts.health, settings.http_port, parts.refresh)
        try:
            async with asyncio.TaskGroup() as group:
                await _live(parts, group, settings, connection, identity)
        finally:
            await parts.lease.release()
            await runner.cleanup()


async def _live(parts: Parts, group: asyncio.TaskGroup, settings: Settings, connection: Connection, identity: str) -> None:
    """Start everything in its turn; what was started goes on in the group."""
    stop = asyncio.Event()
    group.create_task(_until_stopped(stop))
    await _until_done("the first list", parts.resync.once)
    if parts.kueue is not None:
        await _until_done("the first list of Kueue's objects", parts.kueue.once)
    await _until_done("the key for warm workers", parts.task_key_secret.open)
    if parts.node_caches is not None:
        await _until_done("the key of the nodes' caches", parts.node_caches.open)
    if parts.authority is not None:
        await _until_done("the authority's keys", parts.authority.open)
        group.create_task(parts.authority.run())
        group.create_task(parts.authority.serve())
    # After the first lists, so that the two do not share a core. kopf lists again, and what went in between the next round finds.
    _start_watches(parts, group, connection, identity, stop)
    parts.health.synced = True
    store = parts.store
    log.info("synced: %d jobs, %d models, %d nodes, %d pods", len(store.jobs), len(store.models), len(store.nodes), len(store.pods))
    # On standbys too: their view has to stay true, and quiet kinds are heard of by lists alone.
    group.create_task(parts.resync.run(settings.resync_seconds))
    # As is their knowledge of the workers: every replica answers the HPA.
    group.create_task(parts.telemetry.run())
    group.create_task(parts.prober.run())
    if settings.metering.enabled:
        group.create_task(parts.meters.run())
    if parts.metrics_api is not None:
        group.create_task(parts.metrics_api.serve())
    if parts.keda_scaler is not None:
        group.create_task(parts.keda_scaler.serve())
    if parts.gateway is not None:
        group.create_task(parts.gateway.serve())
    if parts.picker is not None:
        group.create_task(parts.picker.serve())
    await parts.lease.acquire()
    metrics.lead()
    group.create_task(parts.lease.hold())
    if parts.metrics_api is not None:
        group.create_task(parts.metrics_api.register())
    group.create_task(parts.events.run())
    group.create_task(parts.scheduling.run())
    if parts.node_caches is not None:
        group.create_task(parts.node_caches.run())
    if parts.gateway_routes is not None:
        group.create_task(parts.gateway_routes.run())
    group.create_task(_sweep(store, parts.queue, parts.clock))
    for _ in range(settings.workers):
        group.create_task(parts.workers.work())


def _start_watches(parts: Parts, group: asyncio.TaskGroup, connection: Connection, identity: str, stop: asyncio.Event) -> None:
    for namespaces, kinds in parts.scope.parted(WATCHED).items():
        registry = kopf.OperatorRegistry()
        register(registry, parts.informer, connection, parts.health.heard, parts.resync.listed, kinds)
        group.create_task(_watch(registry, namespaces, identity, stop))
    if parts.kueue is not None:
        group.create_task(parts.kueue.run())


async def _until_done(what: str, do: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await do()
            return
        except RetryableError as error:
            log.warning("%s is tried again: %s", what, error)
        except OperatorError as error:
            log.error("%s failed; are the CRDs and the RBAC rules installed? %s", what, error)
        await asyncio.sleep(2)


async def _watch(registry: kopf.OperatorRegistry, namespaces: Namespaces, identity: str, stop: asyncio.Event) -> None:
    ready = asyncio.Event()
    # kopf takes the signals for itself when it starts; once it is ready they are ours again.
    signals = asyncio.create_task(_take_signals(ready, stop))
    await kopf.operator(
        registry=registry,
        settings=watch_settings(),
        clusterwide=namespaces == EVERYWHERE,
        namespaces=[name for name in namespaces if name is not None],
        ready_flag=ready,
        standalone=True,
        # Left to itself kopf asks for the user's name, which a container's user does not have.
        identity=cast(Any, identity),
    )
    signals.cancel()
    raise WatchEndedError("kopf's watches have ended")


async def _sweep(store: Store, queue: WorkQueue[Request], clock: Clock) -> None:
    while True:
        await asyncio.sleep(10)
        for uid in store.drop_stale_assumptions(clock.now()):
            if (key := store.job_key(uid)) is not None:
                queue.add(job_request(key))


async def _until_stopped(stop: asyncio.Event) -> None:
    _listen(stop)
    await stop.wait()
    raise StoppedError


async def _take_signals(ready: asyncio.Event, stop: asyncio.Event) -> None:
    await ready.wait()
    _listen(stop)


def _listen(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def _checked(settings: Settings) -> Settings:
    """The settings, whose classes have templates that pods can have. Raises ConfigurationError."""
    fault = next(class_faults(settings.accelerators), None)
    if fault is not None:
        raise ConfigurationError(fault)
    return settings


def main() -> int:
    """The process: 0 when told to stop, 1 when a part failed, 2 when it can't be configured, BEGIN_ANEW when it leads no longer."""
    path = os.environ.get(CONFIG_VARIABLE)
    try:
        settings = _checked(load_settings(Path(path) if path else None))
        logs.set_up(settings.log_level, settings.log_format)
        connection = connect()
    except (ConfigurationError, ConnectionConfigError) as error:
        logs.set_up("INFO")
        log.error("%s", error)
        return 2
    for warning in warnings_of(settings.accelerators):
        log.warning("%s", warning)
    gc.set_threshold(*GC_THRESHOLDS)
    identity = f"{socket.gethostname()}-{os.getpid()}"
    namespace = os.environ.get(NAMESPACE_VARIABLE, "default")
    code = 1
    try:
        asyncio.run(run(settings, connection, namespace, identity, os.environ.get(ADDRESS_VARIABLE)))
    except* StoppedError:
        log.info("stopped")
        code = 0
    except* LeadershipLostError as group:
        log.error("leads no longer: %s", group.exceptions[0])
        code = BEGIN_ANEW
    except* (WatchEndedError, RestoredError) as group:
        log.error("ended: %s", group.exceptions[0])
    except* Exception:
        log.exception("ended by a fault")
    return code
