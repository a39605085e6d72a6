"""The whole of it as the composition root sees it: `serve` on every replica, `register` on the leader."""

import asyncio
import logging
import ssl
from functools import partial

from inference_operator.autoscaling.metrics import Metrics
from inference_operator.autoscaling.metricsapi import certificates
from inference_operator.autoscaling.metricsapi.authentication import CONFIG_PATH, FrontProxy, Tokens, parse_front_proxy
from inference_operator.autoscaling.metricsapi.authorization import SECONDS, Access
from inference_operator.autoscaling.metricsapi.budget import ReviewBudget, ReviewClients
from inference_operator.autoscaling.metricsapi.cache import TimedCache
from inference_operator.autoscaling.metricsapi.certificates import Bundle, Certificates
from inference_operator.autoscaling.metricsapi.endpoint import LeaderEndpoint, Replica
from inference_operator.autoscaling.metricsapi.registration import Registration
from inference_operator.autoscaling.metricsapi.server import Front, Server
from inference_operator.errors import NotFoundError, OperatorError
from inference_operator.kube.ports import ClaimingClient, KubeClient
from inference_operator.runtime.clock import Clock
from inference_operator.runtime.queue import WorkQueue
from inference_operator.settings import Settings
from inference_operator.state.objects import MetricsApi, MetricsApiState
from inference_operator.state.request import Request, job_request
from inference_operator.state.store import Store

log = logging.getLogger(__name__)

# How soon a new certificate or CA is taken up; and how often is looked while something is still missing.
LOOK_SECONDS, HURRY_SECONDS = 10.0, 1.0
# By then kube-proxies have written where the Service leads: a second is their usual pause.
_REACHED_SECONDS = 3.0
# Reviews at once. Whom the API server sends it has authorized already; whoever comes directly may be anybody in the cluster.
_MOST_PROXIED, _MOST_DIRECT = 256, 16


class CustomMetricsService:
    """Keeps server, certificate and registration right, for ever. Registers by `leader`, and does all else by `kube`."""

    def __init__(
        self,
        kube: KubeClient,
        leader: ClaimingClient,
        reviews: ReviewClients,
        store: Store,
        queue: WorkQueue[Request],
        clock: Clock,
        settings: Settings,
        namespace: str,
        replica: Replica | None,
    ) -> None:
        """`replica` is this one, where it runs in a pod."""
        mine = settings.custom_metrics
        self._kube, self._store, self._queue, self._clock = kube, store, queue, clock
        self._certificates = Certificates(kube, namespace=namespace, secret=mine.secret, service=mine.service, makes=mine.issue)
        self._registration = Registration(leader, namespace=namespace, service=mine.service, owner=mine.owner)
        self._endpoint = (
            LeaderEndpoint(leader, namespace=namespace, service=mine.service, port=mine.port, replica=replica)
            if replica is not None
            else None
        )
        self._leader = replica.pod if replica is not None else None
        known = ReviewBudget(reviews.known, most=_MOST_DIRECT)
        tokens = Tokens(known, ReviewBudget(reviews.unknown, most=_MOST_DIRECT), clock.monotonic)
        proxied, direct = (
            Access(budget, TimedCache(clock.monotonic, seconds=SECONDS))
            for budget in (ReviewBudget(reviews.proxied, most=_MOST_PROXIED), known)
        )
        answers = Metrics(store, clock, round_seconds=settings.telemetry_seconds)
        self._front = Front(answers, tokens, proxied=proxied, direct=direct)
        self._port = mine.port
        self._bundle: Bundle | None = None
        store.metrics_api = MetricsApi(MetricsApiState.PENDING)

    async def serve(self) -> None:
        """Serve, looking after certificate and trusted CA."""
        server = Server(self._front, host="0.0.0.0", port=self._port)  # noqa: S104 -- the aggregator comes from outside the pod
        self._port = server.port
        try:
            while True:
                try:
                    await self._look(server)
                except (OperatorError, ssl.SSLError, ValueError) as error:
                    log.warning("the metrics API is not up to date: %s", error)
                await asyncio.sleep(LOOK_SECONDS if self._bundle is not None else HURRY_SECONDS)
        finally:
            await server.close()

    async def _look(self, server: Server) -> None:
        bundle = await self._certificates.current(self._clock.now())
        if bundle is None:
            log.info("waiting for the certificate of the metrics API")
            return
        proxy = await self._front_proxy()
        if (bundle, proxy) != (self._bundle, self._front.front_proxy):
            await server.use(partial(_load, bundle), proxy)
        self._bundle = bundle

    async def _front_proxy(self) -> FrontProxy | None:
        try:
            return parse_front_proxy(await self._kube.get(CONFIG_PATH))
        except NotFoundError:
            return None

    async def register(self) -> None:
        """Lead the Service here, claim the API group while it is free, and tell the jobs when that changes."""
        begun = self._clock.monotonic()
        while True:
            led = await self._lead()
            reached = led and self._clock.monotonic() - begun >= _REACHED_SECONDS
            if self._bundle is not None:
                try:
                    self._tell(await self._registration.once(self._bundle.ca, self._leader if reached else None))
                except OperatorError as error:
                    log.warning("the metrics API can't be registered: %s", error)
            serving = self._store.metrics_api.state is MetricsApiState.SERVING
            await asyncio.sleep(LOOK_SECONDS if serving and reached else HURRY_SECONDS)

    async def _lead(self) -> bool:
        """Lead the Service here; False while it may lead to somebody who is dead."""
        try:
            if self._endpoint is not None:
                await self._endpoint.once()
        except OperatorError as error:
            log.warning("the Service of the metrics API can't be led here: %s", error)
            return False
        return True

    def _tell(self, new: MetricsApi) -> None:
        before, self._store.metrics_api = self._store.metrics_api, new
        if new == before:
            return
        if new.state is MetricsApiState.TAKEN:
            log.error("custom.metrics.k8s.io is served by %s, and a cluster has one provider: no HPA is made", new.owner)
        else:
            log.info("custom.metrics.k8s.io: %s", new.state.value)
        for key, job in self._store.jobs.items():
            if job.spec is not None and job.spec.autoscaling is not None:
                self._queue.add(job_request(key))


def _load(bundle: Bundle, context: ssl.SSLContext) -> None:
    certificates.load(context, bundle)
