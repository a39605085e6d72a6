"""Weights follow what a row takes of each worker, and nothing smaller than that."""

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.gateway.weights import FULL, LEAST, weights

seconds = st.floats(0.0005, 5.0)
workers = st.dictionaries(st.sampled_from("abcdefgh"), seconds, min_size=1)


def test_weights_are_as_the_squares_of_speeds() -> None:
    assert weights({}, {"fast": 0.010, "slow": 0.020}) == {"fast": FULL, "slow": FULL // 4}


@given(workers, st.data())
def test_noise_of_ten_percent_moves_no_weight(row_seconds: dict[str, float], data: st.DataObject) -> None:
    settled = weights({}, row_seconds)

    trembling = {worker: value * data.draw(st.floats(0.9, 1.1)) for worker, value in row_seconds.items()}

    assert weights(settled, trembling) == settled


@given(workers, workers)
def test_what_was_measured_again_changes_nothing(before: dict[str, float], row_seconds: dict[str, float]) -> None:
    settled = weights(weights({}, before), row_seconds)

    assert weights(settled, row_seconds) == settled


@given(workers, st.dictionaries(st.sampled_from("abcdefgh"), st.none() | seconds))
def test_every_worker_has_a_weight_and_none_starves(before: dict[str, float], row_seconds: dict[str, float | None]) -> None:
    found = weights(weights({}, before), row_seconds)

    assert found.keys() == row_seconds.keys()
    assert all(LEAST <= weight <= FULL for weight in found.values())


@given(workers)
def test_a_faster_worker_never_gets_less(row_seconds: dict[str, float]) -> None:
    found = weights({}, row_seconds)

    in_order = sorted(row_seconds, key=lambda worker: row_seconds[worker])
    assert [found[worker] for worker in in_order] == sorted(found.values(), reverse=True)


def test_a_worker_that_nobody_asks_keeps_its_weight_and_a_new_one_begins_among_the_others() -> None:
    before = {"a": 1000, "b": 500, "c": 500}

    assert weights(before, {"a": 0.01, "b": None, "c": 0.0141, "new": None}) == {"a": 1000, "b": 500, "c": 500, "new": 500}
    assert weights({}, {"new": None}) == {"new": FULL}
