"""Who is picked: whoever answers soonest, and nobody where all are too late."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.gateway.picker.pick import Load, Picked, Shed, pick

loads = st.builds(Load, st.integers(0, 50), st.none() | st.floats(0.0005, 5.0), st.floats(0.0, 50.0))
fleets = st.dictionaries(st.sampled_from("abcdefgh"), loads, min_size=1)
deadlines = st.none() | st.floats(0.0, 10.0)


def first(found: Picked | Shed | None) -> str:
    assert isinstance(found, Picked)
    return found.worker


@given(fleets, deadlines)
def test_a_pick_is_among_the_candidates(fleet: dict[str, Load], deadline: float | None) -> None:
    candidates = sorted(fleet)[: len(fleet) // 2 + 1]

    found = pick(fleet, deadline, candidates)

    assert isinstance(found, Shed) or (found is not None and found.worker in candidates)


@given(fleets)
def test_a_request_without_a_deadline_is_never_shed(fleet: dict[str, Load]) -> None:
    assert isinstance(pick(fleet, None, fleet), Picked)


@given(fleets, deadlines)
def test_a_longer_deadline_sheds_nothing_that_a_shorter_one_did_not(fleet: dict[str, Load], deadline: float | None) -> None:
    if isinstance(pick(fleet, deadline, fleet), Picked):
        assert isinstance(pick(fleet, None if deadline is None else deadline * 2, fleet), Picked)


@given(fleets, deadlines)
def test_what_is_shed_would_be_taken_with_the_time_that_it_is_told(fleet: dict[str, Load], deadline: float | None) -> None:
    found = pick(fleet, deadline, fleet)

    if isinstance(found, Shed):
        assert deadline is not None and found.expected_seconds > deadline
        assert isinstance(pick(fleet, found.expected_seconds, fleet), Picked)


@given(fleets, st.integers(1, 50))
def test_whoever_gets_more_to_do_is_not_picked_before_the_others_for_it(fleet: dict[str, Load], more: int) -> None:
    chosen = first(pick(fleet, None, fleet))
    others = {worker: load for worker, load in fleet.items() if worker != chosen}
    for worker, load in others.items():
        busier = {**fleet, worker: replace(load, ahead=load.ahead + more)}
        assert first(pick(busier, None, busier)) == chosen


def test_the_slower_of_two_gets_its_share_and_no_more() -> None:
    """Each pick adds to the queue of whoever is picked, as the picker counts it."""
    fleet, picked = {"fast": Load(0, 0.010), "slow": Load(0, 0.020)}, {"fast": 0, "slow": 0}
    for _ in range(300):
        chosen = first(pick(fleet, None, fleet))
        fleet[chosen] = replace(fleet[chosen], ahead=fleet[chosen].ahead + 1)
        picked[chosen] += 1

    assert picked == {"fast": 200, "slow": 100}


def test_a_worker_that_was_slow_under_load_is_asked_again_once_its_queue_is_gone() -> None:
    fleet = {"was": Load(0, 2.0, at_once=99.0)}

    assert isinstance(pick(fleet, 0.1, fleet), Picked)


def test_a_worker_that_nobody_has_measured_is_taken_for_one_like_the_others_and_never_shed() -> None:
    fleet = {"new": Load(3), "known": Load(3, 0.010)}

    assert isinstance(pick(fleet, 0.001, fleet), Picked) and first(pick(fleet, 0.001, fleet)) == "new"
    assert first(pick(fleet | {"new": Load(4)}, 1.0, fleet)) == "known"


def test_without_candidates_there_is_nobody() -> None:
    assert pick({"a": Load()}, 1.0, ()) is None
