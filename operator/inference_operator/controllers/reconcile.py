"""One job from view to deed: gather, decide, apply. No business rule lives here."""

import asyncio
import logging

from inference_operator.controllers.apply import Applier
from inference_operator.controllers.scheduling_loop import FleetLoop
from inference_operator.controllers.telemetry import Telemetry
from inference_operator.errors import ConflictError, NotFoundError, OperatorError, RetryableError
from inference_operator.jobs.demand import job_state, placement_request, reckoned, running_work
from inference_operator.jobs.plan import plan
from inference_operator.observability import metrics
from inference_operator.runtime.clock import Clock
from inference_operator.runtime.queue import WorkQueue
from inference_operator.settings import Settings
from inference_operator.state.objects import Key, Model
from inference_operator.state.pool_key import model_of, pool_key
from inference_operator.state.store import Store
from inference_operator.warmpools.controller import Pools, makes_pods

log = logging.getLogger(__name__)


class Reconciler:
    """Works keys off the queue."""

    def __init__(
        self,
        store: Store,
        queue: WorkQueue[Key],
        fleet: FleetLoop,
        pools: Pools,
        telemetry: Telemetry,
        applier: Applier,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._store = store
        self._queue = queue
        self._fleet = fleet
        self._pools = pools
        self._telemetry = telemetry
        self._applier = applier
        self._settings = settings
        self._clock = clock

    async def work(self) -> None:
        """Take keys for ever. Several of these run side by side."""
        while True:
            key = await self._queue.get()
            try:
                await self._try(key)
            finally:
                self._queue.done(key)
            # A look that awaits nothing would go on to the next key, ten thousand times, with probes and the fleet loop waiting.
            await asyncio.sleep(0)

    async def _try(self, key: Key) -> None:
        try:
            with metrics.reconcile_seconds.time():
                await self.reconcile(key)
        except (ConflictError, NotFoundError) as error:
            log.info("%s: looked at again: %s", key, error)
            self._queue.retry(key)
        except RetryableError as error:
            log.warning("%s: tried again later: %s", key, error)
            self._queue.retry(key, after_seconds=error.after_seconds)
        except OperatorError as error:
            log.error("%s: %s", key, error)
            self._queue.retry(key)
        except Exception:
            # One job's bug must not stop the others; the metric and the log tell.
            log.exception("%s: reconcile failed", key)
            metrics.reconcile_errors_total.inc()
            self._queue.retry(key)
        else:
            self._queue.forget(key)

    async def reconcile(self, key: Key) -> None:
        """Bring one job closer to what its spec wants."""
        model = model_of(key)
        if model is not None:
            await self._reconcile_pool(key, model)
            return
        observed = self._store.observe(key)
        if observed is None:
            self._fleet.want(key, None)
            self._fleet.hold(key, None)
            # It may have had a warm worker's time, which is free now.
            self._fleet.touch()
            return
        if await self._telemetry.fill(observed.pods):
            observed = self._store.observe(key) or observed
        now = self._clock.now()
        state = job_state(observed, self._settings, now)
        wanted = placement_request(observed, state, self._settings, now)
        self._fleet.want(key, wanted)
        self._fleet.hold(key, running_work(observed, state, self._settings, now))
        decided = plan(observed, state, self._fleet.decision(key), self._settings, now)
        # A time that has passed already was decided with: looking again at once would look for ever.
        if decided.recheck is not None and decided.recheck > now:
            self._queue.add_after(key, (decided.recheck - now).total_seconds())
        if decided.actions:
            try:
                await self._applier.apply(key, decided.actions)
            finally:
                # A place was taken, or assumed and given back: whoever waited beside it has to be answered anew.
                hosted = any(pod.hosted_task is not None for pod in observed.pods)
                if makes_pods(decided) or hosted:
                    self._fleet.touch()
                if hosted and observed.model is not None:
                    # A warm worker that has lost its last task is idle from now on.
                    self._queue.add(pool_key(observed.model.key))
            # What was done changes what is wanted; a second look costs no write when nothing is left to say.
            self._queue.add(key)
            if observed.model is not None:
                self._tell_who_waits(observed.model)

    async def _reconcile_pool(self, key: Key, model: Key) -> None:
        """Bring one model's warm pool closer to what its jobs want."""
        look = self._pools.look(model, self._fleet.demand(key))
        self._fleet.want(key, look.placement_request if look is not None else None)
        if look is None:
            return
        decided = self._pools.plan(look, self._fleet.decision(key))
        if decided.recheck is not None:
            self._queue.add_after(key, max((decided.recheck - self._clock.now()).total_seconds(), 0.1))
        if decided.actions:
            try:
                await self._applier.apply(key, decided.actions)
            finally:
                self._fleet.touch()
            self._queue.add(key)
            self._tell_who_waits(look.observed.model)

    def _tell_who_waits(self, before: Model) -> None:
        """Our own writes are no news when the watch shows them."""
        after = self._store.models.get(before.key)
        if after is not before and reckoned(after) != reckoned(before):
            for job in filter(self._fleet.waits, self._store.jobs_of(before.key)):
                self._queue.add(job)
