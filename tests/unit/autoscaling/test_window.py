"""Windows: differences of counts, whatever a worker says, and no clock but ours."""

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.autoscaling.window import extended, interval, load, sample
from inference_operator.state.load import History, Sample, Workers
from inference_protocol.messages import Telemetry
from inference_protocol.sketch import RELATIVE_ACCURACY, LatencySketch


def counted(time: float, *latencies: float, busy: float = 0.0, outstanding: int = 0, answered: int | None = None) -> Sample:
    """A worker that has answered requests with these latencies since its start."""
    sketch = LatencySketch()
    for seconds in latencies:
        sketch.record(seconds)
    return Sample(time, sketch.counts, busy, len(latencies) if answered is None else answered, outstanding)


def history_of(*rounds: list[Sample], ready: list[int] | None = None) -> History:
    """One list of samples a second, one sample a worker."""
    history: History | None = None
    before: list[Sample] = []
    for number, samples in enumerate(rounds):
        pairs = list(zip(before, samples, strict=False))
        workers = Workers(ready=ready[number] if ready else len(samples), measured=len(samples))
        history = extended(history, interval(pairs, samples[0].time), workers, keep_seconds=25)
        before = samples
    assert history is not None
    return history


def near(value: float | None, wanted: float) -> bool:
    return value is not None and abs(value - wanted) <= 2 * RELATIVE_ACCURACY * wanted


def test_only_what_came_in_the_window_counts() -> None:
    rounds = [[counted(float(t), *[1.0] * 50, *[0.01] * 10 * max(0, t - 4), busy=0.5 * t)] for t in range(10)]
    found = load(history_of(*rounds), seconds=5)

    assert (found.count, found.seconds, found.requests_per_second) == (50, 5.0, 10.0)
    assert near(found.p95, 0.01) and near(found.p50, 0.01)
    assert found.busy == 0.5


def test_latencies_are_merged_before_the_quantile_is_taken() -> None:
    """Two workers, one slow with few requests: the mean of both p95 would be far off."""
    first = [counted(0.0), counted(0.0)]
    second = [counted(1.0, *[0.01] * 97), counted(1.0, *[1.0] * 3)]
    found = load(history_of(first, second), seconds=15)

    assert near(found.p95, 0.01) and near(found.p99, 1.0)


def test_the_first_look_at_a_worker_adds_nothing() -> None:
    assert load(history_of([counted(0.0, *[0.5] * 1000, busy=99.0)]), seconds=15).count == 0


def test_a_worker_that_begins_anew_adds_all_it_has() -> None:
    found = load(history_of([counted(0.0, *[0.5] * 1000, busy=99.0)], [counted(1.0, 0.1, 0.1, busy=0.2)]), seconds=15)

    assert (found.count, found.busy) == (2, 0.2)
    assert near(found.p95, 0.1)


def test_no_worker_is_busier_than_time_allows() -> None:
    assert load(history_of([counted(0.0)], [counted(1.0, busy=1e9, answered=5)]), seconds=15).busy == 1.0


def test_what_piles_up_is_demand() -> None:
    """Ten a second come, five are answered: twice what was computed would be needed."""
    rounds = [[counted(float(t), *[0.2] * 5 * t, busy=float(t), outstanding=5 * t)] for t in range(6)]
    found = load(history_of(*rounds), seconds=5)

    assert (found.busy, found.demand, found.arrived) == (1.0, 2.0, 50)


def test_demand_is_bounded_whatever_workers_say() -> None:
    found = load(history_of([counted(0.0)], [counted(1.0, 0.1, busy=0.5, outstanding=10**9)]), seconds=15)

    assert found.demand == 4 * found.busy


def test_a_window_may_begin_where_the_workers_became_as_many_as_now() -> None:
    rounds = [[counted(float(t), *[0.1] * 10 * t)] for t in range(10)]
    history = history_of(*rounds, ready=[1, 1, 1, 1, 1, 1, 2, 2, 2, 2])

    assert history.steady_since == 6.0
    assert load(history, seconds=15, since=history.steady_since).count == 30
    assert load(history, seconds=15).count == 90


def test_intervals_that_are_too_old_are_forgotten() -> None:
    rounds = [[counted(float(t), *[0.1] * t)] for t in range(100)]

    assert len(history_of(*rounds).intervals) == 25


def test_a_gap_is_spread_over_its_time() -> None:
    """A worker that did not answer for a while: what it computed meanwhile took that while."""
    found = load(history_of([counted(0.0)], [counted(8.0, *[0.1] * 16, busy=4.0)]), seconds=15)

    assert (found.busy, found.requests_per_second) == (0.5, 2.0)


def test_what_telemetry_tells_is_what_is_counted() -> None:
    told = Telemetry(ready=True, draining=False, sketch={1: 2}, in_flight=3, queued=4, requests_total=5, busy_seconds=6.0)

    assert sample(told, 7.0) == Sample(7.0, {1: 2}, 6.0, 5, 7)


_COUNTS = st.dictionaries(st.integers(-4096, 4096), st.integers(0, 2**53), max_size=5)
_SAMPLES = st.builds(
    Sample,
    time=st.floats(0, 1e6),
    sketch=_COUNTS,
    busy_seconds=st.floats(0, 1e15),
    answered=st.integers(0, 2**53),
    outstanding=st.integers(0, 2**54),
)


@given(st.lists(st.tuples(_SAMPLES, _SAMPLES), max_size=4), st.floats(1, 100), st.floats(0, 1e6))
def test_whatever_workers_say_the_window_is_sound(pairs: list[tuple[Sample, Sample]], seconds: float, since: float) -> None:
    history = extended(None, interval([], 0.0), Workers(), keep_seconds=1e9)
    history = extended(history, interval(pairs, 1e6), Workers(len(pairs)), keep_seconds=1e9)
    found = load(history, seconds=seconds, since=since)

    assert found.count >= 0 and found.arrived >= 0 and found.requests_per_second >= 0
    assert 0 <= found.busy <= found.demand * 2 and found.demand <= 4 * found.busy
    assert (found.p95 is None) == (found.count == 0)
    if found.p50 is not None and found.p95 is not None and found.p99 is not None and found.floor is not None:
        assert found.floor <= found.p50 <= found.p95 <= found.p99


def test_a_worker_that_has_begun_anew_adds_all_it_has() -> None:
    found = interval([(counted(1.0, *[0.1] * 50), counted(2.0, 0.2, 0.2, outstanding=3))], 2.0)

    assert (found.answered, found.arrived) == (2, 5)
