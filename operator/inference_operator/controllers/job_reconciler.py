"""One job from view to deed: gather, decide, apply."""

from datetime import datetime

from inference_operator.controllers.apply import Applier
from inference_operator.controllers.scheduling_loop import SchedulingLoop
from inference_operator.controllers.telemetry import Telemetry
from inference_operator.controllers.waiting_jobs import WaitingJobs
from inference_operator.jobs.plan import plan
from inference_operator.jobs.state import JobState, job_state
from inference_operator.runtime.clock import Clock
from inference_operator.runtime.queue import WorkQueue
from inference_operator.settings import Settings
from inference_operator.state.objects import Key
from inference_operator.state.observed import Observed
from inference_operator.state.request import Request, endpoints_request, job_request, pool_request
from inference_operator.state.store import Store
from inference_operator.warmpools.controller import makes_pods
from inference_operator.warmpools.credentials import Tokens
from inference_operator.workers.actions import CreateService


class JobReconciler:
    """Reconciles InferenceJobs."""

    def __init__(
        self,
        store: Store,
        queue: WorkQueue[Request],
        scheduling: SchedulingLoop,
        telemetry: Telemetry,
        applier: Applier,
        waiting_jobs: WaitingJobs,
        settings: Settings,
        tokens: Tokens,
        clock: Clock,
    ) -> None:
        self._store = store
        self._queue = queue
        self._scheduling = scheduling
        self._telemetry = telemetry
        self._applier = applier
        self._waiting_jobs = waiting_jobs
        self._settings = settings
        self._tokens = tokens
        self._clock = clock

    async def reconcile(self, key: Key) -> None:
        """Bring one job closer to what its spec wants."""
        me = job_request(key)
        observed = self._store.observe(key)
        if observed is None:
            self._scheduling.want(me, None)
            self._scheduling.hold(me, None)
            self._scheduling.lend(me, None)
            # It may have had a warm worker's time, which is free now.
            self._scheduling.touch()
            return
        if await self._telemetry.fill(observed.pods):
            observed = self._store.observe(key) or observed
        now = self._clock.now()
        state = self._judge(me, observed, now)
        decided = plan(observed, state, self._scheduling.decision(me), self._settings, self._tokens, now)
        self._store.want_in_caches(key, decided.prefetch)
        # A time that has passed already was decided with: looking again at once would look for ever.
        if decided.recheck is not None and decided.recheck > now:
            self._queue.add_after(me, (decided.recheck - now).total_seconds())
        if not decided.actions:
            return
        try:
            await self._applier.apply(me, decided.actions)
        finally:
            self._wake_others(observed, makes_pods=makes_pods(decided))
        if observed.has_service or any(isinstance(action, CreateService) for action in decided.actions):
            self._queue.add(endpoints_request(key), urgent=True)
        # What was done changes what is wanted; a second look costs no write when nothing is left to say.
        self._queue.add(me)
        if observed.model is not None:
            self._waiting_jobs.wake_after_write(observed.model)

    def _judge(self, me: Request, observed: Observed, now: datetime) -> JobState:
        """Return how a job stands; the scheduling loop hears what it wants, holds and lends, and for whom it made room."""
        state = job_state(observed, self._settings, now)
        self._scheduling.want(me, state.request)
        self._scheduling.hold(me, state.running_work)
        self._scheduling.lend(me, state.lender)
        self._scheduling.read(observed.job)
        return state

    def _wake_others(self, observed: Observed, *, makes_pods: bool) -> None:
        """Have whoever is concerned by what was done about a job look again."""
        latest = self._store.jobs.get(observed.job.key)
        if latest is not None and latest.generation != observed.job.generation:
            # The spec has changed meanwhile: a refusal was of the one before.
            self._store.forget_refusals(job_request(observed.job.key))
        hosted = observed.hosted is not None
        # A place was taken, or assumed and given back: whoever waited beside it has to be decided about anew.
        if makes_pods or hosted:
            self._scheduling.touch()
        if hosted and observed.model is not None:
            # A warm worker that has lost its last task is idle from now on.
            self._queue.add(pool_request(observed.model.key))
        if observed.lent_by is not None:
            # The service tells whom it lends its workers.
            self._queue.add(job_request(observed.lent_by.service))
