"""How long runs take: forecast by the shape of their requests and their number of rows, and learned from the runs that end.

The warm-up measures one shape only. Every other shape gets a profile of its own with its first run: the warm-up's curve, scaled
by what that run took.
"""

from inference_worker.batching.profile import Error, LatencyProfile
from inference_worker.batching.rows import Bucket

_OUTLIER = 4.0
"""An error counts as at most so many times what was expected: one run that hangs must not turn callers away for long."""

_SHAPES = 64
"""Profiles that are kept beside the warm-up's; the oldest goes first."""


class Forecast:
    """What is known of one model's times, in seconds."""

    def __init__(self, profile: LatencyProfile, *, max_rows: int, runners: int, warm: Bucket | None = None) -> None:
        """`warm` is the shape (a bucket without the outputs wanted) that `profile` was measured with, None if unknown."""
        self.max_rows = max_rows
        # What a run takes over the profile (the way to the thread, others on the core), and a whole wait over its forecast.
        self.run_error, self.wait_error = Error(), Error()
        self._runners = runners
        self._warm = warm
        self._profile = profile
        self._profiles: dict[Bucket, LatencyProfile] = {}

    def profile(self, bucket: Bucket) -> LatencyProfile:
        """What is known of requests of this shape; of a shape that was never run, what the warm-up found."""
        return self._profiles.get(bucket[1:], self._profile)

    def most(self, rows: int) -> int:
        """The most rows of a run. Where nothing is put together (a maximum of 1), a request's own `rows` are its caller's."""
        return rows if self.max_rows == 1 else self.max_rows

    def seconds(self, rows: int, bucket: Bucket) -> float:
        """Seconds of as many runs as `rows` take."""
        most = self.most(rows)
        return self.profile(bucket).seconds(min(rows, most)) * max(1.0, rows / most)

    def wait(self, free_in: float, ahead: int, waiting: int) -> float:
        """Seconds until a runner, the first of which is free in `free_in`, has run `ahead` of the `waiting` rows."""
        return free_in + ahead * self._profile.per_row(min(self.max_rows, max(1, waiting))) / self._runners

    def best(self, rows: int, bucket: Bucket, within: float) -> int:
        """Rows to run next of the `rows` that wait: the cheapest number whose run is likely to end `within` so many seconds."""
        return self.profile(bucket).best(rows, within=within - self.run_error.margin)

    def observe(self, rows: int, seconds: float, bucket: Bucket) -> None:
        """Take the time of one run of the model into account."""
        shape = bucket[1:]
        profile = self._profile if self._warm is None or shape == self._warm else self._profiles.get(shape)
        if profile is None:
            if len(self._profiles) >= _SHAPES:
                self._profiles.pop(next(iter(self._profiles)))
            known = self._profile.seconds(rows)
            profile = self._profiles[shape] = self._profile.scaled(seconds / known) if known else LatencyProfile({})
        profile.observe(rows, seconds)

    def observe_batch(self, took: float, expected: float) -> None:
        """Take into account what a batch took, from its start to its answers."""
        self.run_error.observe(min(took - expected, _OUTLIER * expected))

    def observe_wait(self, late: float, expected: float) -> None:
        """Take into account by how much a request was answered `late`, whose batch was `expected` to take so long."""
        self.wait_error.observe(min(late, _OUTLIER * expected))
