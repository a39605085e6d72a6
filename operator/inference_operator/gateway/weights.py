"""How much of a service's load each worker gets: as its p95 compares with the fastest worker's, steady under noise."""

from collections.abc import Mapping

# The fastest worker's; coarse enough for a readable number, fine enough that rounding is no noise of its own.
FULL = 1000
# Whoever is slow stays in use, if only to be measured.
LEAST = 50
# A weight moves when it is off by this factor. Two p95 that tremble by 10 % each move their quotient by 22 %.
BAND = 1.35


def weights(before: Mapping[str, int], p95: Mapping[str, float | None]) -> Mapping[str, int]:
    """The workers' weights, all in LEAST..FULL. `p95` has each of them, in seconds; None where too few requests were seen.

    A worker that is not measured keeps its weight. A new one begins in the middle of the others: it neither starves nor is flooded.
    """
    known = {worker: seconds for worker, seconds in p95.items() if seconds is not None and seconds > 0}
    fastest = min(known.values(), default=0.0)
    ideal = {worker: max(round(FULL * fastest / seconds), LEAST) for worker, seconds in known.items()}
    moved = {worker: _moved(before.get(worker), wanted) for worker, wanted in ideal.items()}
    kept = {worker: before[worker] for worker in p95 if worker not in ideal and worker in before}
    settled = sorted((moved | kept).values())
    middle = settled[len(settled) // 2] if settled else FULL
    return {worker: moved.get(worker, kept.get(worker, middle)) for worker in p95}


def _moved(before: int | None, wanted: int) -> int:
    return before if before is not None and before <= wanted * BAND and wanted <= before * BAND else wanted
