"""The plan by itself: which of the known work is on time together, on lanes of one shape and of two."""

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.scheduling.timeline import Choice, Held, Lane, Lanes, Work, done_behind_all, look_ahead
from inference_operator.state.objects import Key


@dataclass(frozen=True)
class Task:
    """One work on one shape."""

    seconds: float
    due: float
    band: int = 0


def planned(tasks: list[Task], lanes: list[Lane]) -> list[Work]:
    """Works in the order of their rank, planned on lanes of one shape."""
    shape = Lanes(lanes)
    ranked = sorted(tasks, key=lambda task: (task.band, task.due, task.seconds))
    works = [
        Work(Key("n", str(number)), task.due, task.band, [Choice(shape, task.seconds, task.seconds)])
        for number, task in enumerate(ranked)
    ]
    look_ahead(works, [shape])
    return works


def held(name: str = "t", *, remaining: float = 50.0, slack: float = inf, band: int = 0, movable: bool = True) -> Held:
    return Held(Key("n", name), remaining, slack, band, movable=movable, leaving=1.0, resuming=2.0)


def behind(tenure: Held) -> Lane:
    """A lane that somebody has."""
    return Lane(tenure, tenure.remaining)


seconds = st.integers(1, 40)
tasks = st.lists(st.builds(Task, seconds.map(float), st.integers(1, 120).map(float)), max_size=14)


def moore_hodgson(tasks: list[Task]) -> int:
    """The most jobs that can be on time on one machine, all there from the start: earliest due first, the longest dropped."""
    taken: list[float] = []
    for task in sorted(tasks, key=lambda task: task.due):
        taken.append(task.seconds)
        if sum(taken) > task.due:
            taken.remove(max(taken))
    return len(taken)


@given(tasks)
def test_on_one_machine_as_many_are_on_time_as_moore_and_hodgson_allow(tasks: list[Task]) -> None:
    works = planned(tasks, [Lane()])

    assert sum(work.lane is not None for work in works) == moore_hodgson(tasks)


@given(tasks, st.integers(1, 4))
def test_what_is_planned_is_on_time_where_it_is_planned(tasks: list[Task], lanes: int) -> None:
    for work in planned(tasks, [Lane() for _ in range(lanes)]):
        if work.lane is not None:
            assert work.choice is not None
            assert work.start + work.choice.seconds <= work.due + 1e-9


tenures = st.lists(
    st.builds(
        lambda remaining, slack, band, movable: (remaining, slack, band, movable),
        st.integers(1, 60),
        st.sampled_from([-5.0, 0.0, 20.0, 200.0, inf]),
        st.integers(0, 1),
        st.booleans(),
    ),
    max_size=4,
).map(lambda found: [held(f"t{i}", remaining=r, slack=s, band=b, movable=m) for i, (r, s, b, m) in enumerate(found)])
banded = st.lists(st.builds(Task, seconds.map(float), st.sampled_from([*range(5, 120, 7), inf]), st.integers(0, 1)), max_size=10)


@given(banded, tenures, st.integers(0, 2))
def test_a_lane_does_one_work_after_the_other_and_begins_when_its_tenure_has_gone(
    tasks: list[Task], tenures: list[Held], free: int
) -> None:
    lanes = [Lane() for _ in range(free)] + [behind(tenure) for tenure in tenures]
    planned(tasks, lanes)

    for lane in lanes:
        time = 0.0
        if lane.tenure is not None:
            time = lane.tenure.remaining if lane.tenure.evicted_for is None else lane.tenure.leaving
        for work in lane.works:
            assert work.lane is lane and work.choice is not None
            assert work.start >= time
            time = work.start + work.choice.seconds
        assert lane.free >= time - 1e-9 or lane.free == inf


@given(banded, tenures, st.integers(0, 2))
def test_no_work_is_on_two_lanes_and_what_is_on_none_has_no_start(tasks: list[Task], tenures: list[Held], free: int) -> None:
    lanes = [Lane() for _ in range(free)] + [behind(tenure) for tenure in tenures]
    works = planned(tasks, lanes)
    on_lanes = [work.number for lane in lanes for work in lane.works]

    assert len(on_lanes) == len(set(on_lanes))
    assert {work.number for work in works if work.lane is not None} == set(on_lanes)
    assert all(work.start == inf for work in works if work.lane is None)


@given(tasks, st.integers(14, 16))
def test_with_a_lane_for_each_all_that_can_be_on_time_starts_at_once(tasks: list[Task], lanes: int) -> None:
    for work in planned(tasks, [Lane() for _ in range(lanes)]):
        assert work.start == (0.0 if work.choices[0].seconds <= work.due else inf)


@given(tasks, seconds)
def test_another_band_does_not_displace(tasks: list[Task], extra: int) -> None:
    high = {(work.due, work.start) for work in planned(tasks, [Lane(), Lane()])}
    both = planned([*tasks, Task(float(extra), 60.0, band=1)], [Lane(), Lane()])

    assert {(work.due, work.start) for work in both if work.band == 0} == high


def test_what_is_displaced_goes_where_it_is_on_time_too() -> None:
    quick, slow = Lanes([Lane()]), Lanes([Lane()])
    long = Work(Key("n", "long"), 25.0, 0, [Choice(quick, 20.0, 1.0), Choice(slow, 25.0, 60.0)])
    short = Work(Key("n", "short"), 25.0, 0, [Choice(quick, 10.0, 1.0)])
    look_ahead([long, short], [quick, slow])

    assert (short.start, short.lane) == (0.0, quick.lanes[0])
    assert (long.start, long.lane) == (0.0, slow.lanes[0])


def test_what_holds_its_place_is_never_followed() -> None:
    shape = Lanes([Lane()])
    service = Work(Key("n", "service"), 10.0, 0, [Choice(shape, 2.0, 2.0)], holds=True)
    batch = Work(Key("n", "batch"), 900.0, 0, [Choice(shape, 2.0, 2.0)])
    look_ahead([service, batch], [shape])

    assert (service.start, batch.start) == (0.0, inf)


def test_mere_assumptions_are_planned_however_late() -> None:
    shape = Lanes([Lane()])
    guess = Work(Key("n", "guess"), 10.0, 0, [Choice(shape, 600.0, 600.0, sure=False)])
    look_ahead([guess], [shape])

    assert guess.start == 0.0


# Tenures.


def test_the_tenure_with_the_most_slack_makes_room() -> None:
    little, much = held("little", slack=40.0), held("much", slack=90.0)
    (work,) = planned([Task(10.0, 20.0)], [behind(little), behind(much)])

    assert much.evicted_for is work
    assert little.evicted_for is None


@pytest.mark.parametrize(
    ("tenure", "why"),
    [
        (held(movable=False), "it may not leave"),
        (held(slack=12.0), "it would be late itself: a second to leave, ten of work, two to load again"),
        (held(band=-1), "it is of higher priority"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_who_does_not_make_room(tenure: Held, why: str) -> None:
    (work,) = planned([Task(10.0, 20.0)], [behind(tenure)])

    assert (work.lane, tenure.evicted_for) == (None, None), why


def test_who_is_late_in_any_case_makes_room() -> None:
    lost = held(slack=-1.0)
    (work,) = planned([Task(10.0, 20.0)], [behind(lost)])

    assert lost.evicted_for is work


def test_nobody_makes_room_for_work_that_can_wait_or_would_be_late_all_the_same() -> None:
    for task in (Task(10.0, 90.0), Task(10.0, inf), Task(10.0, 10.5)):
        tenure = held()
        planned([task], [behind(tenure)])

        assert tenure.evicted_for is None


def test_nobody_makes_room_while_a_place_is_free() -> None:
    tenure = held()
    (work,) = planned([Task(10.0, 20.0)], [behind(tenure), Lane()])

    assert (tenure.evicted_for, work.start) == (None, 0.0)


def test_one_tenure_makes_room_for_one() -> None:
    tenure = held()
    first, second = planned([Task(10.0, 20.0), Task(10.0, 20.5)], [behind(tenure)])

    assert tenure.evicted_for is first
    assert second.lane is None


def test_one_tenure_seen_by_two_shapes_makes_room_for_one() -> None:
    tenure = held()
    small, large = Lanes([behind(tenure)]), Lanes([behind(tenure)])
    works = [Work(Key("n", str(n)), 20.0, 0, [Choice(shape, 10.0, 10.0)]) for n, shape in enumerate((small, large))]
    look_ahead(works, [small, large])

    assert tenure.evicted_for is works[0]
    assert works[1].lane is None


def test_who_may_not_leave_for_this_work_hides_nobody_who_may() -> None:
    high, low = held("high", slack=inf, band=-1), held("low", slack=90.0)
    (work,) = planned([Task(10.0, 20.0)], [behind(high), behind(low)])

    assert low.evicted_for is work


@pytest.mark.parametrize(("slack", "start"), [(90.0, 1.0 + 10.0 + 2.0 + 50.0), (-1.0, 1.0 + 10.0)], ids=["goes on", "is late"])
def test_who_made_room_is_back_before_the_next_starts_unless_it_is_late_anyway(slack: float, start: float) -> None:
    tenure = held(slack=slack)
    first, second = planned([Task(10.0, 20.0), Task(5.0, 900.0)], [behind(tenure)])

    assert tenure.evicted_for is first
    assert (first.start, second.start) == (1.0, start)


def test_work_without_a_lane_would_come_behind_all_that_is_planned() -> None:
    first, second = planned([Task(10.0, 12.0), Task(11.0, 12.5)], [Lane()])

    assert second.lane is None
    assert first.lane is not None
    assert done_behind_all(second) == 21.0


def test_where_no_lane_comes_free_it_would_never_start() -> None:
    (work,) = planned([Task(10.0, 20.0)], [])

    assert done_behind_all(work) == inf
