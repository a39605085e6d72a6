"""Sees to it that services at zero get a worker when somebody asks. It goes through the API server, so any replica may be asked."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime

from inference_operator.api.conditions import NO_PLACE, ConditionType, Reason, Truth, find
from inference_operator.api.schema import rfc3339
from inference_operator.errors import OperatorError
from inference_operator.gateway.holding import Outlook
from inference_operator.gateway.idle import Activity
from inference_operator.gateway.snapshot import Service
from inference_operator.kube import paths
from inference_operator.kube.ports import KubeClient
from inference_operator.runtime.clock import Clock
from inference_operator.state.objects import Job, Key
from inference_operator.state.store import Store
from inference_protocol.messages import Telemetry

log = logging.getLogger(__name__)

_Named = tuple[str, str, str]


class Waker:
    """What is known of sleepers: who has requests, who was woken and when, and how long the last start took."""

    def __init__(self, store: Store, kube: KubeClient, clock: Clock) -> None:
        self._store = store
        self._kube = kube
        self._clock = clock
        self._activity = Activity()
        # The sleeps that were ended by us, by job, and the words about it that are under way.
        self._ended: dict[Key, datetime] = {}
        self._saying: dict[Key, asyncio.Task[None]] = {}
        # By service: when it was woken, and how long it took to have a worker the last time.
        self._woken: dict[_Named, float] = {}
        self._took: dict[_Named, float] = {}

    def note(self, told: Mapping[str, Telemetry | None]) -> None:
        """Take in a round of telemetry: since when services have no requests."""
        busy, now, jobs = self._activity.busy(told), self._clock.now(), set[str]()
        for pod in self._store.pods.values():
            if pod.uid not in told or pod.worker is None or pod.worker.pool:
                continue
            jobs.add(pod.worker.job_uid)
            if pod.uid in busy:
                self._store.requested[pod.worker.job_uid] = now
        for uid in self._store.requested.keys() - jobs:
            del self._store.requested[uid]

    async def wake(self, service: Service) -> None:
        """Say of each sleeping job of the service that a request has come; once for each sleep."""
        self._woken.setdefault(_named(service), self._clock.monotonic())
        for key in service.jobs:
            job = self._store.jobs.get(key)
            since = job.status.asleep_since if job is not None else None
            if since is None or self._ended.get(key) == since:
                continue
            saying = self._saying.get(key)
            if saying is None:
                saying = self._saying[key] = asyncio.create_task(self._say(key, since))
            await asyncio.shield(saying)

    async def _say(self, key: Key, since: datetime) -> None:
        try:
            await self._kube.merge(f"{paths.one_job(key)}/status", {"status": {"wokenFrom": rfc3339(since)}})
            self._ended[key] = since
        except OperatorError as error:
            # Requests that wait try again.
            log.warning("%s could not be woken: %s", key, error)
        finally:
            del self._saying[key]

    def look(self, services: Iterable[Service]) -> None:
        """Take in what services there are: a start that has ended says how long the next one takes."""
        known = {_named(service): service for service in services}
        for named in list(self._woken):
            if named not in known:
                del self._woken[named]
            elif known[named].live:
                self._took[named] = self._clock.monotonic() - self._woken.pop(named)
        for kept in self._took.keys() - known.keys():
            del self._took[kept]

    def outlook(self, service: Service) -> Outlook:
        """When a worker is expected: as long after the service was woken as the last time, or as its model takes to load."""
        jobs = [job for key in service.jobs if (job := self._store.jobs.get(key)) is not None]
        problems = [problem for job in jobs if (problem := _problem(job)) is not None]
        takes = self._took.get(_named(service), self._load_seconds(service))
        since = self._clock.monotonic() - self._woken.get(_named(service), self._clock.monotonic())
        expected = max(0.0, takes - since) if takes is not None else None
        return Outlook(expected, problems[0] if len(problems) == len(jobs) and problems else None)

    def _load_seconds(self, service: Service) -> float | None:
        model = self._store.models.get(Key(service.namespace, service.model))
        return min((profile.load_seconds for profile in model.status.profiles), default=None) if model is not None else None


def _named(service: Service) -> _Named:
    return service.namespace, service.model, service.version


def _problem(job: Job) -> str | None:
    """Why no worker will come, as the job's conditions say."""
    if job.status.asleep_since is not None:
        return None
    stalled, placed = (find(job.status.conditions, kind) for kind in (ConditionType.STALLED, ConditionType.PLACED))
    if stalled is not None and stalled.status is Truth.TRUE:
        return stalled.message
    if placed is not None and placed.status is Truth.FALSE and placed.reason in NO_PLACE - {Reason.PROVISIONING}:
        return placed.message
    return None
