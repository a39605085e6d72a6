"""How much of a service's load each worker gets: as its speed compares with the fastest worker's, steady under noise.

The speed is what a row takes when there is always enough to do. What requests took would count the queue, which weights make: a
slow worker with little to do would look fast, get more, and look slow again.

Envoy gives a worker requests in proportion to its weight over one more than it has in flight. Workers are to answer equally soon:
then both their rates and what they have in flight are as their speeds, so weights are as the squares of these.
"""

from collections.abc import Mapping

# The fastest worker's; coarse enough for a readable number, fine enough that rounding is no noise of its own.
FULL = 1000
# Whoever is slow stays in use, if only to be measured.
LEAST = 10
# A weight moves when its speed is off by a third. Two speeds that tremble by 10 % each move their quotient by 22 %.
BAND = 1.35**2


def weights(before: Mapping[str, int], row_seconds: Mapping[str, float | None]) -> Mapping[str, int]:
    """The workers' weights, all in LEAST..FULL. `row_seconds` has each of them; None where it is not known.

    A worker that is not measured keeps its weight. A new one begins in the middle of the others: it neither starves nor is flooded.
    """
    known = {worker: seconds for worker, seconds in row_seconds.items() if seconds is not None and seconds > 0}
    fastest = min(known.values(), default=0.0)
    ideal = {worker: max(round(FULL * (fastest / seconds) ** 2), LEAST) for worker, seconds in known.items()}
    moved = {worker: _moved(before.get(worker), wanted) for worker, wanted in ideal.items()}
    kept = {worker: before[worker] for worker in row_seconds if worker not in ideal and worker in before}
    settled = sorted((moved | kept).values())
    middle = settled[len(settled) // 2] if settled else FULL
    return {worker: moved.get(worker, kept.get(worker, middle)) for worker in row_seconds}


def _moved(before: int | None, wanted: int) -> int:
    return before if before is not None and before <= wanted * BAND and wanted <= before * BAND else wanted
