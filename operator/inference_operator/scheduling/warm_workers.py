"""Warm workers as the scheduler sees them: their time in timelines, and whose model they have."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from inference_operator.scheduling.timeline import Timeline, Timelines
from inference_operator.scheduling.types import ColocatedModel, Offer, Option, PlacementRequest, WarmWorker
from inference_operator.state.objects import Key


def warmed(option: Option) -> Option:
    """The option on a worker that has the model."""
    return replace(option, estimate=replace(option.estimate, load_seconds=0.0))


@dataclass(frozen=True, slots=True)
class WarmTimelines:
    """Warm workers of one pool and class that are alike: there or still to be made, with the same co-located models and room."""

    pool: Key
    accelerator: str
    offer: Offer | None
    colocated: frozenset[str]
    timelines: Timelines


def has_model(where: WarmTimelines | WarmWorker, request: PlacementRequest) -> bool:
    """Whether a request's model is loaded there."""
    return where.pool == request.pool or (request.colocated is not None and request.colocated.digest in where.colocated)


class WarmPlaces:
    """The time of all warm workers in one pass."""

    def __init__(self, warm_workers: Iterable[WarmWorker]) -> None:
        self.all = warm_timelines(warm_workers)
        self._open: dict[tuple[Key | None, ColocatedModel | None], tuple[WarmTimelines, ...]] = {}

    def open_to(self, pool: Key | None, colocated: ColocatedModel | None) -> tuple[WarmTimelines, ...]:
        """The warm workers of a job's own pool, and those that would load its model beside theirs; looked up once for all alike."""
        found = self._open.get((pool, colocated))
        if found is None:
            found = self._open[pool, colocated] = tuple(
                warm
                for warm in self.all
                if warm.pool == pool
                or (colocated is not None and warm.offer is not None and warm.offer.takes(colocated, warm.accelerator))
            )
        return found


def warm_timelines(warm_workers: Iterable[WarmWorker]) -> list[WarmTimelines]:
    """The warm workers' timelines. A worker that its pool could add has one in each class, and takes no co-located models."""
    found: dict[tuple[Key, str, bool, frozenset[str], Offer | None], list[WarmWorker]] = {}
    for warm_worker in sorted(warm_workers, key=lambda h: (h.pod is None, h.pod or h.pool)):
        found.setdefault(
            (warm_worker.pool, warm_worker.accelerator, warm_worker.pod is None, warm_worker.colocated, warm_worker.offer), []
        ).append(warm_worker)
    return [
        WarmTimelines(
            pool,
            accelerator,
            None if unmade else offer,
            colocated,
            Timelines([Timeline(free=h.wait, warm_worker=h) for h in alike]),
        )
        for (pool, accelerator, unmade, colocated, offer), alike in found.items()
    ]
