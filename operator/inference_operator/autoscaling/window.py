"""From what workers have counted to the load in a window: differences of counts, merged over workers, then the quantile."""

from collections.abc import Iterable, Mapping

from inference_operator.state.load import History, Interval, Load, Sample, Workers
from inference_protocol.messages import Telemetry
from inference_protocol.sketch import LatencySketch, added

# Requests that take part in a percentile have ended in the window; the fastest few are as good as unloaded.
_FLOOR = 0.05


def sample(telemetry: Telemetry, time: float) -> Sample:
    """A worker's counts."""
    return Sample(
        time=time,
        sketch=telemetry.sketch,
        busy_seconds=telemetry.busy_seconds,
        answered=telemetry.requests_total,
        outstanding=telemetry.in_flight + telemetry.queued,
    )


def interval(pairs: Iterable[tuple[Sample, Sample]], time: float) -> Interval:
    """What was added between two samples of each worker (the earlier one first). A worker that has begun anew adds all it has."""
    whole = LatencySketch()
    seconds = busy = 0.0
    arrived = answered = 0
    for before, after in pairs:
        span = after.time - before.time
        if span <= 0:
            continue
        if after.answered < before.answered:
            before = Sample(before.time, {}, 0.0, 0, 0)  # noqa: PLW2901 -- it starts from nothing
        if after.sketch != before.sketch:
            whole.merge(LatencySketch(added(before.sketch, after.sketch)))
        done = after.answered - before.answered
        seconds += span
        # A worker can't have computed for longer than the time that passed, whatever it says.
        busy += min(span, max(0.0, after.busy_seconds - before.busy_seconds))
        answered += done
        arrived += done + after.outstanding - before.outstanding
    return Interval(time, seconds, whole.counts, busy, arrived, answered)


def extended(before: History | None, new: Interval, workers: Workers, *, keep_seconds: float) -> History:
    """A history with one interval more, and without those that are too old."""
    if before is None:
        return History((new,), workers, new.time, new.time)
    kept = tuple(t for t in before.intervals if new.time - t.time < keep_seconds)
    steady = before.steady_since if workers.ready == before.workers.ready else new.time
    return History((*kept, new), workers, steady, new.time)


def load(history: History, *, seconds: float, since: float = 0.0) -> Load:
    """The load of the last `seconds`, but not before `since`."""
    # A history that is younger than the window begins with its first interval, which adds nothing: there was no earlier one.
    begin = max(history.time - seconds, since, history.intervals[0].time)
    intervals = [t for t in history.intervals if t.time > begin and t.seconds > 0]
    if not intervals:
        return Load()
    span = history.time - begin
    whole = _merged(t.counts for t in intervals)
    busy = sum(t.busy for t in intervals) / span
    arrived, answered = max(0, sum(t.arrived for t in intervals)), sum(t.answered for t in intervals)
    return Load(
        seconds=span,
        count=whole.total,
        arrived=arrived,
        floor=whole.quantile(_FLOOR),
        p50=whole.quantile(0.5),
        p95=whole.quantile(0.95),
        p99=whole.quantile(0.99),
        busy=busy,
        demand=_demand(busy, arrived, answered),
        requests_per_second=answered / span,
    )


def _demand(busy: float, arrived: int, answered: int) -> float:
    """What was computed, scaled to what came in; more than that many times is not believed of one window."""
    if not answered:
        return busy
    return busy * min(max(arrived / answered, 0.5), 4.0)


def _merged(all_counts: Iterable[Mapping[int, int]]) -> LatencySketch:
    whole = LatencySketch()
    for counts in all_counts:
        whole.merge(LatencySketch(counts))
    return whole
