"""What runs and waits are forecast to take, and what changes the forecast."""

from __future__ import annotations

import pytest

from inference_worker.batching.forecast import Forecast
from inference_worker.batching.in_flight import STUCK_SECONDS, InFlight
from inference_worker.batching.profile import LatencyProfile
from inference_worker.batching.ticket import Batch

SEEN, OTHER = (("y",), (2,)), (("y",), (3,))


def a_forecast(*, max_rows: int = 4, runners: int = 1) -> Forecast:
    return Forecast(LatencyProfile({1: 1.0, 4: 2.0}), max_rows=max_rows, runners=runners, warm=SEEN[1:])


def a_batch(begun: float, expected: float) -> Batch:
    return Batch([], 1, begun, expected, 0)


def test_a_request_of_more_rows_than_a_run_has_takes_several_runs() -> None:
    assert [a_forecast().seconds(rows, SEEN) for rows in (1, 4, 8)] == [1.0, 2.0, 4.0]


def test_where_nothing_is_put_together_a_request_is_one_run_of_whatever_size() -> None:
    assert a_forecast(max_rows=1).seconds(8, SEEN) == 4.0


def test_a_wait_is_that_for_a_runner_and_its_share_of_the_rows_ahead() -> None:
    assert a_forecast().wait(0.5, ahead=0, waiting=8) == 0.5
    assert a_forecast().wait(0.5, ahead=8, waiting=8) == pytest.approx(0.5 + 8 * 2.0 / 4)
    assert a_forecast(runners=2).wait(0.5, ahead=8, waiting=8) == pytest.approx(0.5 + 8 * 2.0 / 4 / 2)


def test_another_shape_gets_the_known_curve_scaled_by_its_first_run_and_leaves_that_curve_alone() -> None:
    forecast = a_forecast()

    forecast.observe(1, 3.0, OTHER)

    assert [forecast.seconds(rows, OTHER) for rows in (1, 4)] == [3.0, 6.0]
    assert [forecast.seconds(rows, SEEN) for rows in (1, 4)] == [1.0, 2.0]


def test_shapes_without_end_are_not_kept_without_end() -> None:
    forecast = a_forecast()
    for width in range(100):
        forecast.observe(1, 3.0, (("y",), (width, 7)))

    assert forecast.seconds(1, (("y",), (0, 7))) == 1.0 and forecast.seconds(1, (("y",), (99, 7))) == 3.0


def test_one_batch_that_hangs_adds_a_bounded_error() -> None:
    hung, slow = a_forecast(), a_forecast()

    hung.observe_batch(1000.0, 1.0)
    slow.observe_batch(5.0, 1.0)

    assert hung.run_error.margin == slow.run_error.margin > 0


def test_less_time_than_a_run_is_likely_to_take_makes_a_smaller_batch() -> None:
    forecast = a_forecast()
    assert forecast.best(4, SEEN, within=2.0) == 4

    forecast.observe_batch(2.5, 2.0)

    assert forecast.best(4, SEEN, within=2.0) == 1


def test_a_runner_is_free_when_the_first_of_as_many_runs_as_there_are_runners_ends() -> None:
    in_flight = InFlight(runners=2)
    in_flight.add(a_batch(begun=10.0, expected=5.0))
    assert in_flight.free_in(11.0) == 0.0

    in_flight.add(a_batch(begun=10.5, expected=1.0))

    assert in_flight.free_in(11.0) == 0.5 and in_flight.free_in(12.0) == 0.0
    assert in_flight.seconds(11.0) == 1.5 and len(in_flight) == 2


@pytest.mark.parametrize(("expected", "after"), [(0.0, STUCK_SECONDS), (1.0, 100.0)])
def test_a_run_hangs_after_its_time_and_not_before(expected: float, after: float) -> None:
    in_flight, batch = InFlight(runners=1), a_batch(begun=10.0, expected=expected)
    in_flight.add(batch)

    assert in_flight.hung(10.0 + after) is None and in_flight.hung(10.0 + after + 0.1) is batch


def test_a_prepared_run_is_waited_for_too_and_begins_when_its_turn_comes() -> None:
    in_flight = InFlight(runners=1)
    first, second = a_batch(begun=10.0, expected=2.0), a_batch(begun=10.5, expected=3.0)
    in_flight.add(first)
    in_flight.add(second)
    assert in_flight.free_in(11.0) == 4.0 and in_flight.seconds(11.0) == 1.0

    in_flight.discard(first, 12.0)

    assert second.begun == 12.0 and in_flight.free_in(13.0) == 2.0 and in_flight.seconds(13.0) == 1.0
