"""The operator's parts, put together: what each is given. What they do when is the business of `app`.

The module is longer than others: every part is made here, and each takes some lines.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from inference_operator.autoscaling.controller import Autoscale
from inference_operator.autoscaling.metricsapi.endpoint import Replica
from inference_operator.controllers.apply import Applier
from inference_operator.controllers.endpoints_reconciler import EndpointsReconciler
from inference_operator.controllers.informer import InformerHandlers
from inference_operator.controllers.job_reconciler import JobReconciler
from inference_operator.controllers.kueue import Kueue
from inference_operator.controllers.pool_reconciler import PoolReconciler
from inference_operator.controllers.queue_workers import Reconciler, Workers
from inference_operator.controllers.resync import Resync
from inference_operator.controllers.scheduling_loop import SchedulingLoop, Wake
from inference_operator.controllers.telemetry import Telemetry
from inference_operator.controllers.waiting_jobs import WaitingJobs
from inference_operator.controllers.worker_client import WorkerHttpClient
from inference_operator.errors import PolicyError
from inference_operator.kube.client import ApiSession, Kube
from inference_operator.kube.connection import Connection
from inference_operator.kube.events import EventRecorder
from inference_operator.kube.key_secret import KeySecret
from inference_operator.kube.leaderelection import Leadership, Lease
from inference_operator.kube.ports import WorkerAddress
from inference_operator.kube.scope import Scope
from inference_operator.liveness.prober import Prober
from inference_operator.metering.controller import Meters
from inference_operator.metering.energy import watts
from inference_operator.metering.exporters import Exporters
from inference_operator.metering.workers import WorkerMeters
from inference_operator.observability import metrics
from inference_operator.observability.cluster import ClusterCollector
from inference_operator.observability.devices import DeviceCollector
from inference_operator.observability.health import Health
from inference_operator.observability.history import History
from inference_operator.observability.jobs import JobCollector
from inference_operator.runtime.bounded_http import BoundedHttp, Secured
from inference_operator.runtime.bucket import TokenBucket
from inference_operator.runtime.clock import Clock, ServerClock
from inference_operator.runtime.pings import Pings
from inference_operator.runtime.queue import WorkQueue
from inference_operator.settings import Settings
from inference_operator.state.load import ScalingMetrics
from inference_operator.state.objects import Pod
from inference_operator.state.request import Kind, Request
from inference_operator.state.store import Store
from inference_operator.warmpools.controller import Pools
from inference_operator.warmpools.task_key import TaskKeySecret
from inference_operator.warmpools.tasks import Tasks
from inference_operator.workers.identity import audience, operator, shown_names
from inference_protocol.messages import HEALTH_PORT, LIVE_PATH

if TYPE_CHECKING:
    from inference_operator.autoscaling.keda.server import KedaScaler
    from inference_operator.autoscaling.metricsapi.service import CustomMetricsService
    from inference_operator.gateway.controller import Gateway
    from inference_operator.gateway.gatewayapi.controller import GatewayRoutes
    from inference_operator.gateway.picker.server import EndpointPicker
    from inference_operator.identity.authority import Authority
    from inference_operator.nodecache.controller import NodeCaches
    from inference_operator.shadow.controller import Shadow

log = logging.getLogger(__name__)

# Rate and burst of the reviews for each kind of caller, in the order of ReviewClients: what one uses up takes nothing from another.
_REVIEWS = ((20, 40), (10, 20), (10, 20))
# Of those for workers' certificates: a thousand workers that start at once have theirs in a minute.
_WORKER_REVIEWS = (20, 100)
# Services that requests wake.
_WAKES = (20, 40)


@dataclass(frozen=True, slots=True)
class Parts:
    """All that lives as long as the process."""

    clock: ServerClock
    store: Store
    queue: WorkQueue[Request]
    health: Health
    lease: Lease
    task_key_secret: TaskKeySecret
    authority: "Authority | None"
    node_caches: "NodeCaches | None"
    scheduling: SchedulingLoop
    telemetry: Telemetry
    prober: Prober
    meters: Meters
    workers: Workers
    events: EventRecorder
    informer: InformerHandlers
    scope: Scope
    resync: Resync
    kueue: Kueue | None
    metrics_api: "CustomMetricsService | None"
    keda_scaler: "KedaScaler | None"
    gateway: "Gateway | None"
    picker: "EndpointPicker | None"
    gateway_routes: "GatewayRoutes | None"

    def refresh(self) -> None:
        """Bring gauges up to date before they are read."""
        metrics.leaked_workers.set(len(self.store.leaked(self.clock.now())))
        metrics.queue_depth.set(len(self.queue))
        metrics.clock_skew_seconds.set(self.clock.skew_seconds)


def put_together(
    settings: Settings,
    connection: Connection,
    namespace: str,
    identity: str,
    address: str | None,
    clock: ServerClock,
    *,
    api: ApiSession,
    pods: BoundedHttp,
) -> Parts:
    """Make every part. `address` is this pod's, `api` the session for the API server, `pods` what asks workers and exporters.

    It is longer than others: one line for each part, in the order in which they need each other.
    """
    store = Store(History())
    queue: WorkQueue[Request] = WorkQueue(clock.monotonic)
    health = Health(clock, silence_seconds=3 * settings.resync_seconds)
    # An allowance each: renewing the Lease must not wait behind a thousand status writes, nor these for whoever asks for metrics.
    of_all, of_lease, of_metrics, of_events, *of_reviews = (
        TokenBucket(rate, burst, clock.monotonic)
        for rate, burst in ((settings.requests_per_second, settings.burst), (10, 10), (20, 40), (50, 200), *_REVIEWS)
    )
    leadership = Leadership(clock.boottime)
    # Standbys list, and see to the key and the certificate; all else is written by the leader alone.
    standby, leader = Kube(connection, api, of_all), Kube(connection, api, of_all, leadership)
    task_key_secret = TaskKeySecret(standby, namespace, settings.task_key_name)
    of_workers = TokenBucket(*_WORKER_REVIEWS, clock.monotonic)
    authority = _authority(standby, Kube(connection, api, of_workers), store, settings, namespace, clock)
    workers = WorkerHttpClient(pods, leadership, partial(_secured, authority) if authority is not None else None)
    pools = Pools(store, settings, clock, task_key_secret)
    scheduling = SchedulingLoop(store, pools, settings, clock, queue.add, shadow(settings))
    autoscale = Autoscale(store, clock, queue.add, settings.autoscaling, telemetry_seconds=settings.telemetry_seconds)
    gateway = _gateway(store, clock, settings, Kube(connection, api, TokenBucket(*_WAKES, clock.monotonic)), authority, namespace)
    picker = _picker(store, clock, settings, authority)
    events = EventRecorder(Kube(connection, api, of_events, leadership), clock, reporter=identity)
    routes = _gateway_routes(store, leader, events, clock, settings, namespace)
    doors = [door for door in (gateway, picker) if door is not None]
    wake = _waking(queue.add, [door.wake for door in (gateway, picker, routes) if door is not None])
    after_round = (
        WorkerMeters(store, settings.metering.resource_name).round,
        autoscale.round,
        *(door.round for door in doors),
    )
    telemetry = Telemetry(store, workers, clock, wake, seconds=settings.telemetry_seconds, after_round=after_round)
    trust = (lambda: authority.trust) if authority is not None else None
    node_caches = _node_caches(store, pods, clock, standby, settings, wake)
    granted = node_caches.granted if node_caches is not None else None
    applier = Applier(leader, store, Tasks(store, workers, clock, task_key_secret, queue.add), events, clock, trust, granted)
    waiting_jobs = WaitingJobs(store, scheduling, queue.add)
    reconcilers: dict[Kind, Reconciler] = {
        Kind.JOB: JobReconciler(store, queue, scheduling, telemetry, applier, waiting_jobs, settings, task_key_secret, clock),
        Kind.POOL: PoolReconciler(queue, scheduling, pools, applier, waiting_jobs, clock),
        Kind.ENDPOINTS: EndpointsReconciler(store, leader, clock),
    }
    informer = InformerHandlers(store, scheduling, wake, settings.metering, settings.node_cache)
    scope = Scope(settings.namespaces, all_pods=settings.read_all_pods)
    _register_collectors(store, clock, settings)
    return Parts(
        clock=clock,
        store=store,
        queue=queue,
        health=health,
        lease=Lease(
            Kube(connection, api, of_lease),
            clock,
            leadership,
            namespace=namespace,
            name=settings.lease_name,
            identity=identity,
            seconds=settings.lease_seconds,
            # The port of probes and metrics is open for as long as the process lives.
            listens=(address, settings.http_port) if address is not None and settings.http_port else None,
        ),
        task_key_secret=task_key_secret,
        authority=authority,
        node_caches=node_caches,
        scheduling=scheduling,
        telemetry=telemetry,
        prober=Prober(store, Pings(LIVE_PATH, HEALTH_PORT), clock, partial(informer.wake_owner, urgent=True), scheduling.touch),
        meters=Meters(store, Exporters(pods, settings.metering.port), clock, settings.metering),
        workers=Workers(queue, reconcilers),
        events=events,
        informer=informer,
        scope=scope,
        resync=Resync(standby, store, informer, health.heard, scope),
        kueue=Kueue(standby, store, wake, scope, resync_seconds=settings.resync_seconds) if settings.kueue.enabled else None,
        metrics_api=_metrics_api(
            Kube(connection, api, of_metrics),
            Kube(connection, api, of_metrics, leadership),
            [Kube(connection, api, bucket) for bucket in of_reviews],
            store,
            queue,
            clock,
            settings,
            namespace,
            Replica(identity.rpartition("-")[0], address) if address is not None else None,
        ),
        keda_scaler=_keda_scaler(store, clock, settings, authority),
        gateway=gateway,
        picker=picker,
        gateway_routes=routes,
    )


def _register_collectors(store: Store, clock: Clock, settings: Settings) -> None:
    declared = {name: accelerator.watts_busy for name, accelerator in settings.accelerators.items()}
    metrics.CLUSTER.register(ClusterCollector(store, clock.now))
    metrics.CLUSTER.register(JobCollector(partial(_scaling_metrics, store)))
    metrics.CLUSTER.register(DeviceCollector(declared, partial(_watts, store)))


def _metrics_api(
    kube: Kube,
    leader: Kube,
    reviews: Sequence[Kube],
    store: Store,
    queue: WorkQueue[Request],
    clock: Clock,
    settings: Settings,
    namespace: str,
    replica: Replica | None,
) -> "CustomMetricsService | None":
    if not settings.custom_metrics.enabled:
        return None
    # Its cryptography takes 19 MB, which only those pay who use it.
    from inference_operator.autoscaling.metricsapi.budget import ReviewClients
    from inference_operator.autoscaling.metricsapi.service import CustomMetricsService

    return CustomMetricsService(kube, leader, ReviewClients(*reviews), store, queue, clock, settings, namespace, replica)


def _authority(kube: Kube, reviews: Kube, store: Store, settings: Settings, namespace: str, clock: Clock) -> "Authority | None":
    mine = settings.mutual_tls
    if not mine.enabled:
        return None
    # Its cryptography takes 19 MB, which only those pay who use it.
    from inference_operator.identity.authority import Authority
    from inference_operator.identity.authority_secret import AuthoritySecret
    from inference_operator.identity.issuer import Issuer, Rules
    from inference_operator.identity.keyring import Lifetimes

    lifetimes = Lifetimes(timedelta(seconds=mine.certificate_seconds), timedelta(seconds=mine.authority_seconds))
    issuer = Issuer(
        reviews,
        store.pods.get,
        partial(_shown_names, store),
        Rules(audience(mine), mine.trust_domain, lifetimes),
        now=clock.now,
        monotonic=clock.monotonic,
    )
    own = tuple(f"{name}.{namespace}.svc" for name in (mine.service, *filter(None, (settings.keda_scaler.service,))))
    return Authority(
        AuthoritySecret(kube, namespace=namespace, name=mine.secret, lifetimes=lifetimes),
        issuer,
        clock,
        lifetimes,
        domain=mine.trust_domain,
        uri=operator(mine),
        hosts=own,
        port=mine.port,
    )


def _node_caches(store: Store, pods: BoundedHttp, clock: Clock, kube: Kube, settings: Settings, wake: Wake) -> "NodeCaches | None":
    mine = settings.node_cache
    if not mine.enabled:
        return None
    from inference_operator.nodecache.controller import FIELD, NodeCaches

    return NodeCaches(store, pods, clock, KeySecret(kube, mine.namespace, mine.key_name, FIELD), mine, wake)


def _secured(authority: "Authority", worker: WorkerAddress) -> Secured:
    from inference_operator.identity.checks import ExpectedWorker

    return Secured(authority.of_workers, ExpectedWorker(worker.namespace, worker.uid).server_name)


def _shown_names(store: Store, pod: Pod) -> tuple[str, ...]:
    key = store.job_key(pod.worker.job_uid) if pod.worker is not None else None
    return shown_names(pod, store.jobs.get(key) if key is not None else None)


def _keda_scaler(store: Store, clock: Clock, settings: Settings, authority: "Authority | None") -> "KedaScaler | None":
    if not settings.keda_scaler.enabled:
        return None
    # Its gRPC takes 6 MB.
    from inference_operator.autoscaling.keda.server import KedaScaler

    mine, context = settings.keda_scaler, None
    if authority is not None and mine.tls:
        context = partial(authority.server_context, "h2", mine.client_ca_file)
    return KedaScaler(store, clock, settings, context)


def _gateway(
    store: Store, clock: Clock, settings: Settings, kube: Kube, authority: "Authority | None", namespace: str
) -> "Gateway | None":
    if not settings.gateway.enabled:
        return None
    # Its gRPC and Envoy's messages take 8 MB.
    from inference_operator.gateway.controller import Gateway

    return Gateway(
        store, clock, settings.gateway, kube, (lambda: authority.trust) if authority is not None else lambda: "", namespace
    )


def _picker(store: Store, clock: Clock, settings: Settings, authority: "Authority | None") -> "EndpointPicker | None":
    mine = settings.gateway.endpoint_picker
    if not mine.enabled:
        return None
    # Its gRPC and Envoy's messages take 8 MB.
    from inference_operator.gateway.picker.server import EndpointPicker

    context = partial(authority.server_context, "h2") if authority is not None and mine.tls else None
    return EndpointPicker(store, clock, mine.port, context)


def _gateway_routes(
    store: Store, kube: Kube, events: EventRecorder, clock: Clock, settings: Settings, namespace: str
) -> "GatewayRoutes | None":
    if not settings.gateway.api.enabled:
        return None
    from inference_operator.gateway.gatewayapi.controller import GatewayRoutes

    return GatewayRoutes(store, kube, events, clock, settings.gateway, namespace, tuple(settings.namespaces))


def _waking(add: Wake, doors: Sequence[Callable[[], None]]) -> Wake:
    """Whatever wakes a job or a pool may concern the doors too."""
    if not doors:
        return add

    def wake(request: Request, /, *, urgent: bool = False) -> None:
        add(request, urgent=urgent)
        for door in doors:
            door()

    return wake


def shadow(settings: Settings) -> "Shadow | None":
    """The learned policy that is asked beside each pass; none without one, and none, with a word, where it can't be used."""
    if not settings.policy.path:
        return None
    try:
        # They need numpy and ONNX Runtime, which only those images have whose owners want this.
        from inference_operator.shadow.controller import Shadow
        from inference_operator.shadow.policy import load_policy

        found = Shadow(load_policy(Path(settings.policy.path)))
    except (ImportError, PolicyError) as error:
        log.warning("no learned policy is asked; scheduling is as without one: %s", error)
        return None
    metrics.policy_loaded.set(1)
    return found


def _watts(store: Store) -> Iterator[tuple[str, float]]:
    for pod in store.pods.values():
        drawn = watts(store.meters.get(pod.uid, {}))
        if drawn is not None and pod.worker is not None and not pod.terminal:
            yield pod.worker.accelerator, drawn


def _scaling_metrics(store: Store) -> Iterator[tuple[tuple[str, str], ScalingMetrics]]:
    for key, job in store.jobs.items():
        if (scaling_metrics := store.scaling_metrics.get(job.uid)) is not None:
            yield (key.namespace, key.name), scaling_metrics
