"""The composition root: builds everything, runs it in one task group, and ends the process when any part of it ends."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import aiohttp
import kopf

from inference_operator.controller.autoscale import Autoscale
from inference_operator.controller.fleet import FleetLoop
from inference_operator.controller.handlers import register, watch_settings
from inference_operator.controller.intake import Intake
from inference_operator.controller.reconcile import Reconciler
from inference_operator.controller.resync import Resync
from inference_operator.controller.store import Store
from inference_operator.controller.telemetry import Telemetry
from inference_operator.custommetrics.service import CustomMetricsService
from inference_operator.domain.cluster import Key
from inference_operator.domain.load import Measure
from inference_operator.effects.apply import Applier
from inference_operator.effects.connection import Connection, ConnectionConfigError, connect
from inference_operator.effects.kube import Kube
from inference_operator.effects.lease import LeadershipLostError, Lease
from inference_operator.effects.workers import Workers
from inference_operator.errors import OperatorError, RetryableError
from inference_operator.observability import logs, metrics
from inference_operator.observability.health import Health, serve_health
from inference_operator.observability.jobs import JobCollector
from inference_operator.runtime.bucket import TokenBucket
from inference_operator.runtime.clock import SystemClock
from inference_operator.runtime.queue import WorkQueue
from inference_operator.settings import ConfigurationError, Settings, load_settings

log = logging.getLogger(__name__)

CONFIG_VARIABLE = "INFERENCE_OPERATOR_CONFIG"
NAMESPACE_VARIABLE = "POD_NAMESPACE"


class StoppedError(Exception):
    """The process was told to stop."""


class WatchEndedError(Exception):
    """kopf's watches ended though nobody asked: the view would go stale, so the process must start anew."""


async def run(settings: Settings, connection: Connection, namespace: str, identity: str, port: int) -> None:
    """Run until told to stop. Raises StoppedError then, and whatever else ends a part."""
    clock = SystemClock()
    store = Store()
    queue: WorkQueue[Key] = WorkQueue(clock.monotonic)
    health = Health(clock, silence_seconds=3 * settings.resync_seconds)
    connector = aiohttp.TCPConnector(limit=64)
    async with aiohttp.ClientSession(connector=connector) as session, aiohttp.ClientSession() as pods:
        bucket = TokenBucket(settings.requests_per_second, settings.burst, clock.monotonic)
        kube = Kube(connection, session, bucket)
        # Renewing the Lease must not wait behind a thousand status writes.
        lease = Lease(
            Kube(connection, session, TokenBucket(10, 10, clock.monotonic)),
            clock,
            namespace=namespace,
            name=settings.lease_name,
            identity=identity,
        )
        fleet = FleetLoop(store, settings, clock, queue.add)
        pace = settings.telemetry_seconds
        autoscale = Autoscale(store, clock, queue.add, settings.autoscaling, telemetry_seconds=pace)
        telemetry = Telemetry(store, Workers(pods), clock, queue.add, seconds=pace, after_round=autoscale.round)
        metrics.REGISTRY.register(JobCollector(partial(_measures, store)))
        metrics_api = _metrics_api(connection, session, store, queue, clock, settings, namespace)
        applier = Applier(kube, store, clock, reporter=identity)
        reconciler = Reconciler(store, queue, fleet, telemetry, applier, settings, clock)
        intake = Intake(store, fleet, queue.add, settings.namespaces)
        resync = Resync(kube, store, intake, health.heard)

        def refresh() -> None:
            metrics.jobs.set(len(store.jobs))
            metrics.queue_depth.set(len(queue))

        runner = await serve_health(health, port, refresh)
        try:
            async with asyncio.TaskGroup() as group:
                stop = asyncio.Event()
                group.create_task(_until_stopped(stop))
                await _first_sync(resync)
                # After the first lists, so that the two do not share a core; kopf lists again, so nothing falls in between.
                group.create_task(_watch(intake, connection, health, identity, stop))
                health.synced = True
                log.info(
                    "synced: %d jobs, %d models, %d nodes, %d pods",
                    len(store.jobs),
                    len(store.models),
                    len(store.nodes),
                    len(store.pods),
                )
                # On standbys too: their view has to stay true, and quiet kinds are heard of by lists alone.
                group.create_task(resync.run(settings.resync_seconds))
                # As is their knowledge of the workers: every replica answers the HPA.
                group.create_task(telemetry.run())
                if metrics_api is not None:
                    group.create_task(metrics_api.serve())
                await lease.acquire()
                if metrics_api is not None:
                    group.create_task(metrics_api.register())
                metrics.leading.set(1)
                group.create_task(lease.hold())
                group.create_task(fleet.run())
                group.create_task(_sweep(store, queue, clock))
                for _ in range(settings.workers):
                    group.create_task(reconciler.work())
        finally:
            await lease.release()
            await runner.cleanup()


def _measures(store: Store) -> Iterator[tuple[tuple[str, str], Measure]]:
    for key, job in store.jobs.items():
        if (measure := store.measures.get(job.uid)) is not None:
            yield (key.namespace, key.name), measure


def _metrics_api(
    connection: Connection,
    session: aiohttp.ClientSession,
    store: Store,
    queue: WorkQueue[Key],
    clock: SystemClock,
    settings: Settings,
    namespace: str,
) -> CustomMetricsService | None:
    if not settings.custom_metrics.enabled:
        return None
    # Its own allowance: whoever asks for metrics must not slow the operator's work down.
    kube = Kube(connection, session, TokenBucket(20, 40, clock.monotonic))
    return CustomMetricsService(kube, store, queue, clock, settings, namespace)


async def _first_sync(resync: Resync) -> None:
    while True:
        try:
            await resync.once()
            return
        except RetryableError as error:
            log.warning("the first list is tried again: %s", error)
        except OperatorError as error:
            log.error("the first list failed; are the CRDs and the RBAC rules installed? %s", error)
        await asyncio.sleep(2)


async def _watch(intake: Intake, connection: Connection, health: Health, identity: str, stop: asyncio.Event) -> None:
    registry = kopf.OperatorRegistry()
    register(registry, intake, connection, health.heard)
    ready = asyncio.Event()
    # kopf takes the signals for itself when it starts; once it is ready they are ours again.
    signals = asyncio.create_task(_take_signals(ready, stop))
    await kopf.operator(
        registry=registry,
        settings=watch_settings(),
        # Everywhere, whatever namespaces are served: free capacity is what all pods of the cluster leave over.
        clusterwide=True,
        ready_flag=ready,
        standalone=True,
        # Left to itself kopf asks for the user's name, which a container's user does not have.
        identity=cast(Any, identity),
    )
    signals.cancel()
    raise WatchEndedError("kopf's watches have ended")


async def _sweep(store: Store, queue: WorkQueue[Key], clock: SystemClock) -> None:
    while True:
        await asyncio.sleep(10)
        for uid in store.drop_stale_assumptions(clock.now()):
            if (key := store.job_key(uid)) is not None:
                queue.add(key)


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


def main() -> int:
    """The process: 0 when told to stop, 1 when a part failed, 2 when it can't be configured."""
    path = os.environ.get(CONFIG_VARIABLE)
    try:
        settings = load_settings(Path(path) if path else None)
        logs.set_up(settings.log_level)
        connection = connect()
    except (ConfigurationError, ConnectionConfigError) as error:
        logs.set_up("INFO")
        log.error("%s", error)
        return 2
    identity = f"{socket.gethostname()}-{os.getpid()}"
    namespace = os.environ.get(NAMESPACE_VARIABLE, "default")
    code = 1
    try:
        asyncio.run(run(settings, connection, namespace, identity, settings.http_port))
    except* StoppedError:
        log.info("stopped")
        code = 0
    except* (LeadershipLostError, WatchEndedError) as group:
        log.error("ended: %s", group.exceptions[0])
    except* Exception:
        log.exception("ended by a fault")
    return code
