"""What holds of every fleet in which work already has places: who is asked to make room, for whom, and that it comes to an end."""

import random
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.instants import shift
from inference_operator.scheduling import filters
from inference_operator.scheduling.estimate import Estimate
from inference_operator.scheduling.node_capacity import free_amounts
from inference_operator.scheduling.scheduler import is_late, schedule
from inference_operator.scheduling.types import Answer, Fleet, Need, Option, Tenure
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key, Node
from inference_operator.state.resources import shortage, subtract
from tests.builders import NOW, a_need, a_node, a_tenants_pod, a_tenure, an_option

WEIGHTS = CostWeights()
CLASSES = {"cpu": an_option("cpu"), "gpu": an_option("gpu", gpu=1)}

# Small and full, so that room is scarce: in every third fleet somebody has to make room.
nodes = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 1)), min_size=1, max_size=2).map(
    lambda found: tuple(a_node(f"node-{i}", cpu=str(cpu), gpu=gpu) for i, (cpu, gpu) in enumerate(found))
)
tenures = st.lists(
    st.builds(
        lambda node, class_, left, deadline, priority, movable: a_tenure(
            node=f"node-{node}", option=CLASSES[class_], left=left, deadline_in=deadline, priority=priority, movable=movable
        ),
        st.integers(0, 1),
        st.sampled_from(["cpu", "cpu", "gpu"]),
        st.integers(-5, 90) | st.integers(40, 90),
        st.none() | st.integers(-10, 100) | st.integers(100, 300),
        st.sampled_from([0, 0, 0, 5]),
        st.sampled_from([True, True, True, True, False]),
    ),
    min_size=3,
    max_size=8,
)
seconds = st.integers(3, 40)
options = st.one_of(
    seconds.map(lambda s: (an_option("cpu", seconds=s),)),
    seconds.map(lambda s: (an_option("gpu", seconds=s, gpu=1),)),
    st.tuples(seconds, seconds).map(lambda s: (an_option("cpu", seconds=max(s)), an_option("gpu", seconds=min(s), gpu=1))),
)
needs = st.lists(
    st.builds(
        lambda chosen, deadline, priority, firm, holds: replace(
            a_need("n", *chosen, deadline_in=deadline, priority=priority, firm=firm), holds=holds
        ),
        options,
        st.none() | st.integers(-10, 150) | st.integers(20, 60),
        st.sampled_from([0, 0, 5]),
        st.booleans(),
        st.sampled_from([False, False, False, False, True]),
    ),
    min_size=1,
    max_size=6,
)


def named(needs: list[Need], tenures: list[Tenure], nodes: tuple[Node, ...]) -> Fleet:
    """A fleet in which all that has a place has room there."""
    free = free_amounts(nodes, ())
    held: list[Tenure] = []
    for tenure in tenures:
        there = free.get(tenure.node)
        if there is not None and shortage(tenure.shape.amounts, there) is None:
            subtract(there, tenure.shape.amounts)
            name = f"t{len(held)}"
            held.append(replace(tenure, key=Key("default", name), uid=f"uid-of-{name}"))
    wanted = tuple(replace(need, key=Key("default", f"n{i}"), uid=f"uid-of-n{i}") for i, need in enumerate(needs))
    return Fleet(nodes, tuple(a_tenants_pod(tenure) for tenure in held), wanted, tuple(held))


fleets = st.builds(named, needs, tenures, nodes)


def decided(fleet: Fleet) -> dict[Key, Answer]:
    return schedule(fleet, WEIGHTS, NOW)


def evictions(fleet: Fleet, answers: dict[Key, Answer]) -> list[tuple[Tenure, Need]]:
    """Who makes room for whom."""
    by_key = {need.key: need for need in fleet.needs}
    found = [(tenure, answers[tenure.key].eviction) for tenure in fleet.tenures if tenure.key in answers]
    return [(tenure, by_key[eviction.beneficiary]) for tenure, eviction in found if eviction is not None]


def left(tenure: Tenure) -> float:
    return max((tenure.end - NOW).total_seconds(), 0.05 * (NOW - tenure.begun).total_seconds())


def there(tenure: Tenure, need: Need) -> list[Option]:
    """The ways in which a need could be met in a tenure's place."""
    return [option for option in need.options if set(option.shape.amounts) <= set(tenure.shape.amounts)]


def gist(answers: dict[Key, Answer]) -> dict[Key, object]:
    """Who gets what and who makes room for whom; what those who wait are told of times and others is left out."""
    return {
        key: (
            [(a.accelerator, a.node) for a in answer.assignments],
            answer.obstacle.reason if answer.obstacle else None,
            answer.eviction.beneficiary if answer.eviction else None,
        )
        for key, answer in answers.items()
    }


@given(fleets)
def test_room_is_made_only_for_work_that_is_then_on_time(fleet: Fleet) -> None:
    for tenure, need in evictions(fleet, decided(fleet)):
        assert need.deadline is not None and not is_late(need, NOW)
        needed = min(option.estimate.total_seconds for option in need.options)
        assert shift(NOW, tenure.leaving_seconds + needed) <= need.deadline


@given(fleets)
def test_who_is_made_room_for_is_told_a_start_that_is_on_time(fleet: Fleet) -> None:
    answers = decided(fleet)

    for _, need in evictions(fleet, answers):
        obstacle = answers[need.key].obstacle
        assert obstacle is not None and obstacle.done is not None and need.deadline is not None
        assert obstacle.done <= need.deadline


@given(fleets)
def test_who_makes_room_is_on_time_afterwards_or_was_late_anyway(fleet: Fleet) -> None:
    for tenure, need in evictions(fleet, decided(fleet)):
        if tenure.deadline is None or shift(NOW, left(tenure)) > tenure.deadline:
            continue
        assert not need.holds
        meanwhile = min(option.estimate.total_seconds for option in need.options)
        back = tenure.leaving_seconds + meanwhile + tenure.resuming_seconds + left(tenure)
        assert shift(NOW, back) <= tenure.deadline


@given(fleets)
def test_nobody_makes_room_for_a_lower_priority(fleet: Fleet) -> None:
    assert all(tenure.priority <= need.priority for tenure, need in evictions(fleet, decided(fleet)))


@given(fleets)
def test_who_may_not_move_is_never_asked(fleet: Fleet) -> None:
    assert all(tenure.movable for tenure, _ in evictions(fleet, decided(fleet)))


@given(fleets)
def test_a_tenure_is_answered_only_if_it_has_to_leave_and_makes_room_for_one(fleet: Fleet) -> None:
    answers = decided(fleet)
    pairs = evictions(fleet, answers)

    assert set(answers) == {need.key for need in fleet.needs} | {tenure.key for tenure, _ in pairs}
    assert all(count == 1 for count in Counter(need.key for _, need in pairs).values())
    assert all((answers[t.key].uid, answers[t.key].revision) == (t.uid, t.revision) for t, _ in pairs)


@given(fleets)
def test_room_is_made_where_the_work_then_fits(fleet: Fleet) -> None:
    free = free_amounts(fleet.nodes, fleet.pods)
    by_name = {node.name: node for node in fleet.nodes}

    for tenure, need in evictions(fleet, decided(fleet)):
        fits = [
            option
            for option in need.options
            if filters.unfit(by_name[tenure.node], option.shape) is None and filters.frees(tenure, free[tenure.node], option.shape)
        ]
        assert fits


def test_who_would_free_too_little_is_not_asked() -> None:
    wide = a_need("wide", an_option("cpu", seconds=20, cpu="2"), deadline_in=40)
    small = [a_tenure(f"t{i}", option=CLASSES["cpu"]) for i in range(2)]
    fleet = Fleet((a_node(cpu="2"),), tuple(a_tenants_pod(tenure) for tenure in small), (wide,), tuple(small))

    assert not evictions(fleet, decided(fleet))


@given(fleets)
def test_nobody_makes_room_for_what_starts_now(fleet: Fleet) -> None:
    answers = decided(fleet)

    assert not [need for _, need in evictions(fleet, answers) if answers[need.key].assignments]


@given(fleets, st.integers(0, 10))
def test_the_order_of_the_snapshot_does_not_matter(fleet: Fleet, seed: int) -> None:
    dice = random.Random(seed)
    mixed = Fleet(*(tuple(dice.sample(part, len(part))) for part in (fleet.nodes, fleet.pods, fleet.needs, fleet.tenures)))

    assert decided(mixed) == decided(fleet)


@given(fleets)
def test_late_work_asks_nobody_to_leave(fleet: Fleet) -> None:
    late = tuple(need for need in fleet.needs if is_late(need, NOW) or need.deadline is None)

    assert not evictions(fleet, decided(replace(fleet, needs=late)))


@given(fleets)
def test_late_work_takes_nothing_from_work_that_can_be_on_time(fleet: Fleet) -> None:
    on_time = tuple(need for need in fleet.needs if not is_late(need, NOW))
    alone, together = gist(decided(replace(fleet, needs=on_time))), gist(decided(fleet))

    assert {key: together[key] for key in alone} == alone


impossible = st.sampled_from(
    [
        a_need("impossible", an_option(cpu="1000"), priority=1000, deadline_in=60),
        a_need("impossible", an_option(node_selector={"no": "where"}), priority=1000, slots=100, deadline_in=60),
        a_need("impossible", priority=1000, deadline_in=-1, firm=True),
    ]
)


@given(fleets, impossible)
def test_work_that_fits_no_empty_node_changes_nobodys_answer(fleet: Fleet, extra: Need) -> None:
    alone, together = decided(fleet), decided(replace(fleet, needs=(extra, *fleet.needs)))

    assert {key: answer for key, answer in together.items() if key != extra.key} == alone


@given(fleets)
def test_with_room_for_all_everything_starts_now_and_nobody_leaves(fleet: Fleet) -> None:
    roomy = replace(fleet, nodes=tuple(a_node(node.name, cpu="64", gpu=16) for node in fleet.nodes))
    answers = decided(roomy)

    assert not evictions(roomy, answers)
    for need in fleet.needs:
        assert answers[need.key].assignments or (need.firm and is_late(need, NOW))


@given(fleets)
def test_those_who_wait_have_places_in_the_queue_by_their_expected_start(fleet: Fleet) -> None:
    waiting = [a.obstacle for a in decided(fleet).values() if a.obstacle is not None and a.obstacle.position is not None]
    in_turn = sorted(waiting, key=lambda obstacle: obstacle.position or 0)
    starts = [obstacle.start for obstacle in in_turn if obstacle.start is not None]

    assert [obstacle.position for obstacle in in_turn] == list(range(1, len(in_turn) + 1))
    assert starts == sorted(starts)
    assert all(obstacle.start is not None for obstacle in in_turn[: len(starts)])
    assert all(start >= NOW for start in starts)


one_class = st.builds(
    lambda needs, tenures, cpu: named(needs, tenures, (a_node("node-0", cpu=str(cpu)),)),
    st.lists(
        st.builds(
            lambda s, deadline: a_need("n", an_option("cpu", seconds=s), deadline_in=deadline), seconds, st.integers(60, 150)
        ),
        max_size=8,
    ),
    st.lists(st.integers(5, 90).map(lambda left: a_tenure(node="node-0", left=left, movable=False)), max_size=3),
    st.integers(1, 3),
)


@given(one_class)
def test_at_no_time_is_more_expected_to_run_than_there_are_places(fleet: Fleet) -> None:
    answers = decided(fleet)
    spans = [(NOW, tenure.end) for tenure in fleet.tenures]
    for need in fleet.needs:
        answer = answers[need.key]
        if answer.assignments:
            spans.append((NOW, shift(NOW, need.options[0].estimate.cautious_seconds)))
        elif answer.obstacle is not None and answer.obstacle.start is not None and answer.obstacle.done is not None:
            spans.append((answer.obstacle.start, answer.obstacle.done))
    places = fleet.nodes[0].allocatable["cpu"] // 1000

    moment = timedelta(milliseconds=1)
    for start, _ in spans:
        assert sum(begin <= start and start + moment < end for begin, end in spans) <= places


# What comes of it, pass after pass, while the clock stands still.


@dataclass
class Carried:
    """A fleet whose answers are carried out at once: places are taken, and who makes room wants a place again."""

    fleet: Fleet
    evicted: Counter[Key]

    def step(self) -> bool:
        """One pass; whether it changed anything."""
        answers = decided(self.fleet)
        needs, tenures = list(self.fleet.needs), list(self.fleet.tenures)
        leaving = [tenure for tenure in tenures if tenure.key in answers and answers[tenure.key].eviction is not None]
        for tenure in leaving:
            tenures.remove(tenure)
            needs.append(self._back(tenure))
            self.evicted[tenure.key] += 1
        for need in self.fleet.needs:
            for assignment in answers[need.key].assignments:
                (option,) = [o for o in need.options if o.accelerator == assignment.accelerator]
                needs.remove(need)
                tenures.append(self._settled(need, option, assignment.node))
        changed = bool(leaving) or len(tenures) != len(self.fleet.tenures)
        self.fleet = Fleet(self.fleet.nodes, tuple(a_tenants_pod(tenure) for tenure in tenures), tuple(needs), tuple(tenures))
        return changed

    def _back(self, tenure: Tenure) -> Need:
        estimate = Estimate(tenure.resuming_seconds, left(tenure), measured=True)
        accelerator = "gpu" if tenure.shape == CLASSES["gpu"].shape else "cpu"
        option = replace(CLASSES[accelerator], estimate=estimate)
        return replace(a_need(tenure.key.name, option, priority=tenure.priority), deadline=tenure.deadline, created=tenure.begun)

    def _settled(self, need: Need, option: Option, node: str) -> Tenure:
        total = option.estimate.total_seconds
        found = a_tenure(need.key.name, node=node, option=option, left=total, begun_ago=0.0, priority=need.priority)
        return replace(found, deadline=need.deadline, movable=not need.holds)


def jobs(fleet: Fleet) -> int:
    return len(fleet.needs) + len(fleet.tenures)


@given(fleets)
def test_making_room_comes_to_an_end_and_nobody_is_sent_back_and_forth(fleet: Fleet) -> None:
    world = Carried(fleet, Counter())

    for _ in range(4 * jobs(fleet) + 4):
        if not world.step():
            break
    else:
        raise AssertionError("passes never come to rest")
    assert world.evicted.total() <= jobs(fleet)


@given(fleets)
def test_who_made_room_evicts_nobody_in_the_next_pass(fleet: Fleet) -> None:
    world = Carried(fleet, Counter())
    world.step()
    gone = set(world.evicted)

    assert not [(tenure, need) for tenure, need in evictions(world.fleet, decided(world.fleet)) if need.key in gone]
