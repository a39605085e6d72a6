"""One model from view to deed, with its warm pool: gather, decide, apply."""

from inference_operator.controllers.apply import Applier
from inference_operator.controllers.scheduling_loop import SchedulingLoop
from inference_operator.controllers.waiting_jobs import WaitingJobs
from inference_operator.runtime.clock import Clock
from inference_operator.runtime.queue import WorkQueue
from inference_operator.state.objects import Key
from inference_operator.state.request import Request, pool_request
from inference_operator.warmpools.controller import Pools, moves_pool

# A pool is looked at again after this at the earliest.
_SOON_SECONDS = 0.1


class PoolReconciler:
    """Reconciles InferenceModels and their warm pools."""

    def __init__(
        self,
        queue: WorkQueue[Request],
        scheduling: SchedulingLoop,
        pools: Pools,
        applier: Applier,
        waiting_jobs: WaitingJobs,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._scheduling = scheduling
        self._pools = pools
        self._applier = applier
        self._waiting_jobs = waiting_jobs
        self._clock = clock

    async def reconcile(self, key: Key) -> None:
        """Bring the warm pool of the model with this key closer to what its jobs want, and say how the model stands."""
        me = pool_request(key)
        look = self._pools.look(key, self._scheduling.demand(key))
        self._scheduling.want(me, look.request if look is not None else None)
        if look is None:
            return
        decided = self._pools.plan(look, self._scheduling.decision(me))
        if decided.recheck is not None:
            self._queue.add_after(me, max((decided.recheck - self._clock.now()).total_seconds(), _SOON_SECONDS))
        if not decided.actions:
            return
        try:
            await self._applier.apply(me, decided.actions)
        finally:
            if moves_pool(decided, look.observed.model):
                self._scheduling.touch()
            self._pools.forget_refusals_of(look)
        self._queue.add(me)
        self._waiting_jobs.wake_after_write(look.observed.model)
