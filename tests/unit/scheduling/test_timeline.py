"""The plan by itself: which of the known work is on time together, on the timelines of one set of requirements and of two."""

from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.scheduling.ahead import done_behind_all, schedule_ahead
from inference_operator.scheduling.timeline import Candidate, RunningUnit, SchedulingUnit, Timeline, Timelines
from inference_operator.state.objects import Key
from inference_operator.state.request import job_request


@dataclass(frozen=True)
class Task:
    """One unit of work."""

    seconds: float
    due: float
    band: int = 0


def planned(tasks: list[Task], timelines: list[Timeline]) -> list[SchedulingUnit]:
    """Works in the order of their rank, planned on the timelines of one set of requirements."""
    requirements = Timelines(timelines)
    ranked = sorted(tasks, key=lambda task: (task.band, task.due, task.seconds))
    units = [
        SchedulingUnit(
            job_request(Key("n", str(number))), task.due, task.band, [Candidate(requirements, task.seconds, task.seconds)]
        )
        for number, task in enumerate(ranked)
    ]
    schedule_ahead(units, [requirements])
    return units


def running_unit(
    name: str = "t", *, remaining: float = 50.0, slack: float = inf, band: int = 0, movable: bool = True
) -> RunningUnit:
    return RunningUnit(job_request(Key("n", name)), remaining, slack, band, movable=movable, leaving=1.0, resuming=2.0)


def behind(running_work: RunningUnit) -> Timeline:
    """A timeline that somebody has."""
    return Timeline(running_work, running_work.remaining)


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
    units = planned(tasks, [Timeline()])

    assert sum(unit.timeline is not None for unit in units) == moore_hodgson(tasks)


@given(tasks, st.integers(1, 4))
def test_what_is_planned_is_on_time_where_it_is_planned(tasks: list[Task], timelines: int) -> None:
    for unit in planned(tasks, [Timeline() for _ in range(timelines)]):
        if unit.timeline is not None:
            assert unit.candidate is not None
            assert unit.start + unit.candidate.seconds <= unit.due + 1e-9


running = st.lists(
    st.builds(
        lambda remaining, slack, band, movable: (remaining, slack, band, movable),
        st.integers(1, 60),
        st.sampled_from([-5.0, 0.0, 20.0, 200.0, inf]),
        st.integers(0, 1),
        st.booleans(),
    ),
    max_size=4,
).map(lambda found: [running_unit(f"t{i}", remaining=r, slack=s, band=b, movable=m) for i, (r, s, b, m) in enumerate(found)])
banded = st.lists(st.builds(Task, seconds.map(float), st.sampled_from([*range(5, 120, 7), inf]), st.integers(0, 1)), max_size=10)


@given(banded, running, st.integers(0, 2))
def test_a_timeline_does_one_work_after_the_other_and_begins_when_its_running_work_has_gone(
    tasks: list[Task], running: list[RunningUnit], free: int
) -> None:
    timelines = [Timeline() for _ in range(free)] + [behind(running_work) for running_work in running]
    planned(tasks, timelines)

    for timeline in timelines:
        time = 0.0
        if timeline.running_work is not None:
            time = timeline.running_work.remaining if timeline.running_work.preempted_for is None else timeline.running_work.leaving
        for unit in timeline.units:
            assert unit.timeline is timeline and unit.candidate is not None
            assert unit.start >= time
            time = unit.start + unit.candidate.seconds
        assert timeline.free >= time - 1e-9 or timeline.free == inf


@given(banded, running, st.integers(0, 2))
def test_no_work_is_on_two_timelines_and_what_is_on_none_has_no_start(
    tasks: list[Task], running: list[RunningUnit], free: int
) -> None:
    timelines = [Timeline() for _ in range(free)] + [behind(running_work) for running_work in running]
    units = planned(tasks, timelines)
    on_timelines = [unit.number for timeline in timelines for unit in timeline.units]

    assert len(on_timelines) == len(set(on_timelines))
    assert {unit.number for unit in units if unit.timeline is not None} == set(on_timelines)
    assert all(unit.start == inf for unit in units if unit.timeline is None)


@given(tasks, st.integers(14, 16))
def test_with_a_timeline_for_each_all_that_can_be_on_time_starts_at_once(tasks: list[Task], timelines: int) -> None:
    for unit in planned(tasks, [Timeline() for _ in range(timelines)]):
        assert unit.start == (0.0 if unit.candidates[0].seconds <= unit.due else inf)


@given(tasks, seconds)
def test_another_band_does_not_displace(tasks: list[Task], extra: int) -> None:
    high = {(unit.due, unit.start) for unit in planned(tasks, [Timeline(), Timeline()])}
    both = planned([*tasks, Task(float(extra), 60.0, band=1)], [Timeline(), Timeline()])

    assert {(unit.due, unit.start) for unit in both if unit.band == 0} == high


def test_what_is_displaced_goes_where_it_is_on_time_too() -> None:
    quick, slow = Timelines([Timeline()]), Timelines([Timeline()])
    long = SchedulingUnit(job_request(Key("n", "long")), 25.0, 0, [Candidate(quick, 20.0, 1.0), Candidate(slow, 25.0, 60.0)])
    short = SchedulingUnit(job_request(Key("n", "short")), 25.0, 0, [Candidate(quick, 10.0, 1.0)])
    schedule_ahead([long, short], [quick, slow])

    assert (short.start, short.timeline) == (0.0, quick.timelines[0])
    assert (long.start, long.timeline) == (0.0, slow.timelines[0])


def test_what_holds_its_place_is_never_followed() -> None:
    requirements = Timelines([Timeline()])
    service = SchedulingUnit(job_request(Key("n", "service")), 10.0, 0, [Candidate(requirements, 2.0, 2.0)], holds=True)
    batch = SchedulingUnit(job_request(Key("n", "batch")), 900.0, 0, [Candidate(requirements, 2.0, 2.0)])
    schedule_ahead([service, batch], [requirements])

    assert (service.start, batch.start) == (0.0, inf)


def test_mere_assumptions_are_planned_however_late() -> None:
    requirements = Timelines([Timeline()])
    guess = SchedulingUnit(job_request(Key("n", "guess")), 10.0, 0, [Candidate(requirements, 600.0, 600.0, sure=False)])
    schedule_ahead([guess], [requirements])

    assert guess.start == 0.0


# Running work.


def test_the_running_work_with_the_most_slack_makes_room() -> None:
    little, much = running_unit("little", slack=40.0), running_unit("much", slack=90.0)
    (unit,) = planned([Task(10.0, 20.0)], [behind(little), behind(much)])

    assert much.preempted_for is unit
    assert little.preempted_for is None


@pytest.mark.parametrize(
    ("running_work", "why"),
    [
        (running_unit(movable=False), "it may not leave"),
        (running_unit(slack=12.0), "it would be late itself: a second to leave, ten of work, two to load again"),
        (running_unit(band=-1), "it is of higher priority"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_who_does_not_make_room(running_work: RunningUnit, why: str) -> None:
    (unit,) = planned([Task(10.0, 20.0)], [behind(running_work)])

    assert (unit.timeline, running_work.preempted_for) == (None, None), why


def test_who_is_late_in_any_case_makes_room() -> None:
    lost = running_unit(slack=-1.0)
    (unit,) = planned([Task(10.0, 20.0)], [behind(lost)])

    assert lost.preempted_for is unit


def test_nobody_makes_room_for_work_that_can_wait_or_would_be_late_all_the_same() -> None:
    for task in (Task(10.0, 90.0), Task(10.0, inf), Task(10.0, 10.5)):
        running_work = running_unit()
        planned([task], [behind(running_work)])

        assert running_work.preempted_for is None


def test_nobody_makes_room_while_a_place_is_free() -> None:
    running_work = running_unit()
    (unit,) = planned([Task(10.0, 20.0)], [behind(running_work), Timeline()])

    assert (running_work.preempted_for, unit.start) == (None, 0.0)


def test_one_running_work_makes_room_for_one() -> None:
    running_work = running_unit()
    first, second = planned([Task(10.0, 20.0), Task(10.0, 20.5)], [behind(running_work)])

    assert running_work.preempted_for is first
    assert second.timeline is None


def test_running_work_that_two_kinds_of_pods_see_makes_room_for_one() -> None:
    running_work = running_unit()
    small, large = Timelines([behind(running_work)]), Timelines([behind(running_work)])
    units = [
        SchedulingUnit(job_request(Key("n", str(n))), 20.0, 0, [Candidate(requirements, 10.0, 10.0)])
        for n, requirements in enumerate((small, large))
    ]
    schedule_ahead(units, [small, large])

    assert running_work.preempted_for is units[0]
    assert units[1].timeline is None


def test_who_may_not_leave_for_this_work_hides_nobody_who_may() -> None:
    high, low = running_unit("high", slack=inf, band=-1), running_unit("low", slack=90.0)
    (unit,) = planned([Task(10.0, 20.0)], [behind(high), behind(low)])

    assert low.preempted_for is unit


@pytest.mark.parametrize(("slack", "start"), [(90.0, 1.0 + 10.0 + 2.0 + 50.0), (-1.0, 1.0 + 10.0)], ids=["goes on", "is late"])
def test_who_made_room_is_back_before_the_next_starts_unless_it_is_late_anyway(slack: float, start: float) -> None:
    running_work = running_unit(slack=slack)
    first, second = planned([Task(10.0, 20.0), Task(5.0, 900.0)], [behind(running_work)])

    assert running_work.preempted_for is first
    assert (first.start, second.start) == (1.0, start)


def test_work_without_a_timeline_would_come_behind_all_that_is_planned() -> None:
    first, second = planned([Task(10.0, 12.0), Task(11.0, 12.5)], [Timeline()])

    assert second.timeline is None
    assert first.timeline is not None
    assert done_behind_all(second) == 21.0


def test_where_no_timeline_comes_free_it_would_never_start() -> None:
    (unit,) = planned([Task(10.0, 20.0)], [])

    assert done_behind_all(unit) == inf


def test_work_without_a_timeline_would_be_done_where_it_is_done_first() -> None:
    quick, slow = Timelines([Timeline(free=5.0)]), Timelines([Timeline(free=1.0)])
    unit = SchedulingUnit(job_request(Key("n", "j")), 1.0, 0, [Candidate(quick, 10.0, 1.0), Candidate(slow, 30.0, 1.0)])

    assert done_behind_all(unit) == 15.0


def test_what_is_displaced_is_put_elsewhere_before_what_comes_after_it() -> None:
    quick, slow = Timelines([Timeline()]), Timelines([Timeline()])
    long = SchedulingUnit(job_request(Key("n", "long")), 25.0, 0, [Candidate(quick, 20.0, 1.0), Candidate(slow, 25.0, 60.0)])
    short = SchedulingUnit(job_request(Key("n", "short")), 25.0, 0, [Candidate(quick, 10.0, 1.0)])
    later = SchedulingUnit(job_request(Key("n", "later")), 30.0, 0, [Candidate(slow, 30.0, 1.0)])
    schedule_ahead([long, short, later], [quick, slow])

    assert (long.start, short.start, later.start) == (0.0, 0.0, inf)


def test_a_timeline_that_is_not_free_first_moves_without_another_being_lost() -> None:
    requirements = Timelines([Timeline(), Timeline()])
    asked = [("long", 20.0, 22.0), ("other", 10.0, 12.0), ("short", 5.0, 12.0), ("next", 6.0, 18.0), ("last", 7.0, 17.5)]
    units = [SchedulingUnit(job_request(Key("n", n)), due, 0, [Candidate(requirements, took, 1.0)]) for n, took, due in asked]
    schedule_ahead(units, [requirements])

    # `short` takes the place of `long`, on the timeline that is free last.
    assert {unit.key.key.name: unit.start for unit in units} == {
        "long": inf, "other": 0.0, "short": 0.0, "next": 5.0, "last": 10.0,
    }  # fmt: skip
