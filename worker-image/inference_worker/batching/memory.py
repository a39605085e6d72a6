"""How many rows fit the device, found out the hard way once and then remembered."""

from inference_worker.batching.rows import Bucket

_PROBE_SECONDS = 60.0
_BUCKETS = 256


class MemoryCeilings:
    """The largest number of rows that may be tried, by bucket. Times are seconds of any one monotonic clock.

    A ceiling rises one step a minute at most: whoever rediscovers it pays for a run that fails, so it must be rare.
    """

    __slots__ = ("_ceilings", "hopeless")

    def __init__(self) -> None:
        self._ceilings: dict[Bucket, tuple[int, float]] = {}
        # Runs of a single row that found no memory, one after another: nothing is left to halve.
        self.hopeless = 0

    def limit(self, bucket: Bucket, wanted: int, now: float) -> int:
        """Rows that may be tried now, at most `wanted`."""
        known = self._ceilings.get(bucket)
        if known is None:
            return wanted
        ceiling, since = known
        if now - since >= _PROBE_SECONDS:
            ceiling *= 2
            if ceiling >= wanted:
                del self._ceilings[bucket]
                return wanted
            self._ceilings[bucket] = ceiling, now
        return max(1, min(wanted, ceiling))

    def failed(self, bucket: Bucket, rows: int, now: float) -> None:
        """`rows` did not fit."""
        if rows <= 1:
            self.hopeless += 1
            return
        known = self._ceilings.get(bucket)
        half = rows // 2
        if known is None and len(self._ceilings) >= _BUCKETS:
            self._ceilings.pop(next(iter(self._ceilings)))
        self._ceilings[bucket] = (min(half, known[0]) if known is not None else half), now

    def succeeded(self) -> None:
        """A run had room enough."""
        self.hopeless = 0

    @property
    def lowest(self) -> int | None:
        """The lowest ceiling in force; None when there is none."""
        return min((ceiling for ceiling, _ in self._ceilings.values()), default=None)
