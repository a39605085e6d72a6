"""A pool's workers as the scheduler sees them: places for tasks, there or still to be made."""

from dataclasses import replace
from datetime import datetime

from inference_operator.api.model import Sharing, most_workers
from inference_operator.api.quantity import parse_quantity
from inference_operator.scheduling.types import Offer, PoolDemand, WarmWorker
from inference_operator.settings import Settings
from inference_operator.state.objects import Pod
from inference_operator.state.observed import PoolObserved
from inference_operator.state.runner import is_running
from inference_operator.warmpools.eligibility import Pool, offer_of
from inference_operator.warmpools.pool_state import PoolState
from inference_operator.workers.options import planned_node, worker_resources


def warm_workers(
    observed: PoolObserved, state: PoolState, demand: PoolDemand, settings: Settings, now: datetime, *, blocked: bool = False
) -> tuple[WarmWorker, ...]:
    """Return the workers that answer, those that start, and those that the pool could add unless it is `blocked`."""
    pool = state.pool
    if pool is None:
        return ()
    # Made anew in every pass: pools that share nothing are not asked what room they have.
    open_ = () if pool.spec.sharing is Sharing.NONE else settings.accelerators
    offers = {name: offer_of(pool, name, _memory_bytes(pool, name, settings)) for name in open_}
    starts = {o.accelerator: o.estimate.load_seconds for o in pool.like.options}
    found = []
    for pod in state.current:
        if pod.worker is not None:
            load = starts.get(pod.worker.accelerator, settings.assumed_load_seconds)
            found.append(_place(observed, pool, pod, pod.worker.accelerator, load, offers.get(pod.worker.accelerator), now))
    if state.fault is None and not blocked:
        for accelerator, load in starts.items():
            extra = range(most_workers(pool.spec) - len(state.current))
            found.extend(WarmWorker(pool.model.key, None, "", accelerator, load, 0, ready=False) for _ in extra[: demand.count])
    return tuple(found)


def _place(
    observed: PoolObserved, pool: Pool, pod: Pod, accelerator: str, load_seconds: float, offer: Offer | None, now: datetime
) -> WarmWorker:
    ready = is_running(pod) and pod.address is not None
    since = (now - pod.created).total_seconds() if pod.created is not None else 0.0
    return WarmWorker(
        pool=pool.model.key,
        pod=pod.key,
        node=planned_node(pod) or "",
        accelerator=accelerator,
        wait=observed.busy_seconds.get(pod.key, 0.0) if ready else max(load_seconds - since, 0.1 * load_seconds),
        tasks=observed.tasks.get(pod.key, 0),
        ready=ready,
        offer=_on_its_device(offer, observed.device_free_bytes.get(pod.key, 0)),
        colocated=observed.colocated.get(pod.key, frozenset()),
    )


def _on_its_device(offer: Offer | None, free_bytes: int) -> Offer | None:
    """The offer of one worker, by what that says its device has left; nothing, where it has none or does not say."""
    return replace(offer, memory=offer.memory._replace(device=free_bytes)) if offer is not None and free_bytes else offer


def _memory_bytes(pool: Pool, accelerator: str, settings: Settings) -> int | None:
    """The memory that a pool's workers may use: their limit, else what is kept for them; None where neither is said."""
    resources = worker_resources(pool.like.spec, pool.model, accelerator, settings.accelerators[accelerator])
    size = resources.limits.get("memory") or resources.requests.get("memory")
    return parse_quantity(size) if size is not None else None
