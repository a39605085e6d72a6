"""What namespaces can't do to each other: fill the queue, take all devices, or preempt without end."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.conditions import Reason
from inference_operator.namespace_limits import Limits, NamespaceLimits
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Decision, Fleet, Option, PendingReason, PlacementRequest
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key
from inference_operator.state.request import Request, job_request
from tests.builders import NOW, a_node, a_request, a_running_work, a_worker, an_option

WEIGHTS = CostWeights()
NO_LIMITS = NamespaceLimits()
ON_GPU = an_option("gpu", gpu=1)


def decided(fleet: Fleet, limits: NamespaceLimits = NO_LIMITS) -> dict[Request, Decision]:
    found = schedule(fleet, WEIGHTS, NOW, limits)
    return {key: found.explained(key) for key in found}


def places(decisions: dict[Request, Decision]) -> Counter[str]:
    """How many places each namespace is given."""
    found: Counter[str] = Counter()
    for request, decision in decisions.items():
        found[request.namespace] += len(decision.assignments)
    return +found


def flood(
    namespace: str, count: int, *options: Option, priority: int = 0, deadline_in: float | None = None
) -> tuple[PlacementRequest, ...]:
    """Jobs that came long before anybody else's."""
    return tuple(
        a_request(f"flood-{i}", *options, namespace=namespace, created_ago=3600.0 - i, priority=priority, deadline_in=deadline_in)
        for i in range(count)
    )


def pending_of(decisions: dict[Request, Decision], request: PlacementRequest) -> PendingReason:
    pending = decisions[request.key].pending
    assert pending is not None
    return pending


def capped(
    *, max_devices: dict[str, int] | None = None, max_replicas: int | None = None, max_preemptions_per_hour: int | None = None
) -> NamespaceLimits:
    """Caps of the namespace `greedy` alone."""
    limits = Limits(max_devices=max_devices or {}, max_replicas=max_replicas, max_preemptions_per_hour=max_preemptions_per_hour)
    return NamespaceLimits(overrides={"greedy": limits})


# Fair shares: one namespace fills the queue.


@pytest.mark.parametrize("priority", [0, 1000])
@pytest.mark.parametrize("deadline_in", [None, 3000.0])
def test_five_hundred_jobs_of_one_namespace_do_not_keep_the_only_job_of_another_waiting(
    priority: int, deadline_in: float | None
) -> None:
    greedy = flood("greedy", 500, priority=priority, deadline_in=deadline_in)
    modest = a_request(
        "modest", namespace="modest", priority=priority, deadline_in=4000.0 if deadline_in else None, created_ago=0.0
    )
    decisions = decided(Fleet((a_node(cpu="4"),), (), (*greedy, modest)))

    assert decisions[modest.key].assignments
    assert places(decisions) == {"greedy": 3, "modest": 1}


def test_a_namespace_that_has_the_cluster_waits_until_another_has_its_share() -> None:
    has = tuple(a_worker(f"w{i}", namespace="greedy") for i in range(6))
    both = (*flood("greedy", 50), *(a_request(f"m{i}", namespace="modest", created_ago=0.0) for i in range(50)))
    decisions = decided(Fleet((a_node(cpu="8"),), has, both))

    assert places(decisions) == {"modest": 2}


def test_a_service_of_a_thousand_replicas_is_a_thousand_turns_and_not_one() -> None:
    service = replace(a_request("service", namespace="greedy", workers=1000, created_ago=3600.0), holds=True)
    modest = tuple(a_request(f"m{i}", namespace="modest", created_ago=0.0) for i in range(3))

    assert places(decided(Fleet((a_node(cpu="6"),), (), (service, *modest)))) == {"greedy": 3, "modest": 3}


def test_requirements_of_another_kind_do_not_go_round_the_turns() -> None:
    """Timelines of different requirements promise the same node twice: the turns decide who gets it, not who was planned first."""
    large = a_request("service", an_option(cpu="1", node_selector={}), namespace="greedy", workers=100, created_ago=3600.0)
    other = an_option(cpu="1.5")
    modest = tuple(a_request(f"m{i}", other, namespace="modest", created_ago=0.0) for i in range(2))
    decisions = decided(Fleet((a_node(cpu="6"),), (), (large, *modest)))

    assert places(decisions)["modest"] == 2


def test_twice_the_weight_is_twice_the_share() -> None:
    limits = NamespaceLimits(overrides={"heavy": Limits(weight=2.0)})
    both = (*flood("heavy", 50), *flood("light", 50))

    assert places(decided(Fleet((a_node(cpu="9"),), (), both), limits)) == {"heavy": 6, "light": 3}


def test_each_namespaces_dominant_resource_is_what_is_shared() -> None:
    """Three quarters of the cores are as much as three quarters of the devices."""
    on_cpu, on_gpu = an_option(cpu="1"), an_option("gpu", cpu="1", gpu=1)
    both = (*flood("cores", 30, on_cpu), *flood("devices", 30, on_gpu))
    found = places(decided(Fleet((a_node(cpu="12", gpu=4),), (), both)))

    assert found == {"cores": 9, "devices": 3}


def test_the_higher_priority_goes_first_whatever_its_namespace_has() -> None:
    has = (a_worker("w1", namespace="greedy"), a_worker("w2", namespace="greedy"))
    urgent = a_request("urgent", namespace="greedy", priority=5)
    decisions = decided(Fleet((a_node(cpu="3"),), has, (*flood("modest", 5), urgent)))

    assert decisions[urgent.key].assignments


def test_inside_a_namespace_the_earliest_deadline_goes_first() -> None:
    mine = tuple(a_request(f"n{i}", namespace="mine", deadline_in=200.0 - 20 * i) for i in range(4))
    decisions = decided(Fleet((a_node(cpu="4"),), (), (*flood("other", 9), *mine)))

    assert {key.name for key, decision in decisions.items() if decision.assignments and key.namespace == "mine"} == {"n2", "n3"}


def test_short_jobs_of_one_namespace_do_not_displace_a_long_one_of_another() -> None:
    """Moore's rule would have the one long job late for the sake of many short ones, whoever's they are."""
    long = a_request("long", an_option(seconds=90.0), namespace="modest", deadline_in=100.0)
    short = tuple(a_request(f"s{i}", an_option(seconds=30.0), namespace="greedy", deadline_in=95.0) for i in range(9))
    decisions = decided(Fleet((a_node(cpu="2"),), (a_worker(namespace="greedy"),), (*short, long)))

    assert decisions[long.key].assignments


def test_impossible_jobs_do_not_use_up_the_turns_of_their_namespace() -> None:
    impossible = flood("mine", 50, an_option(cpu="1000"))
    possible = a_request("possible", namespace="mine", created_ago=1.0)
    decisions = decided(Fleet((a_node(cpu="2"),), (), (*impossible, possible, *flood("other", 9))))

    assert decisions[possible.key].assignments


def test_who_waits_beside_other_namespaces_is_told_its_share_and_the_fair_one() -> None:
    has = tuple(a_worker(f"w{i}", namespace="greedy") for i in range(3))
    greedy, modest = flood("greedy", 5), a_request("modest", namespace="modest")
    decisions = decided(Fleet((a_node(cpu="3"),), has, (*greedy, modest)))

    told = pending_of(decisions, greedy[0])
    assert told.reason is Reason.FAIR_SHARE
    assert told.message.startswith("no node has room now; cpu: ")
    assert "namespace greedy has 100% of cpu; its fair share is 50%, as 2 namespaces have work" in told.message
    # Who has nothing waits for room, and reads the shares beside that.
    waits = pending_of(decisions, modest)
    assert waits.reason is Reason.NO_FREE_CAPACITY and "namespace modest has 0% of" in waits.message


def test_who_is_passed_over_for_a_namespace_with_less_is_told_that_shares_decided() -> None:
    has = (a_worker("w1", namespace="middle"), *(a_worker(f"h{i}", namespace="most") for i in range(4)))
    middle = a_request("middle", namespace="middle", created_ago=3600.0)
    least = tuple(a_request(f"least-{i}", namespace="least", created_ago=0.0) for i in range(2))
    decisions = decided(Fleet((a_node(cpu="6"),), has, (middle, *least, *flood("most", 3))))

    assert places(decisions) == {"least": 1}
    assert pending_of(decisions, middle).reason is Reason.FAIR_SHARE
    # On a class that nobody was given a place of, shares have decided nothing.
    of_gpu = replace(middle, options=(ON_GPU,))
    busy = (*has, a_worker("g", namespace="most", option=ON_GPU, node="node-2"))
    nodes = (a_node(cpu="6"), a_node("node-2", cpu="1", gpu=1))
    decisions = decided(Fleet(nodes, busy, (of_gpu, *least, *flood("most", 3))))
    assert pending_of(decisions, of_gpu).reason is Reason.NO_FREE_CAPACITY


def test_who_waits_alone_hears_nothing_of_shares() -> None:
    has = (a_worker("w1", namespace="other"),)
    waits = a_request("waits", namespace="mine")

    assert pending_of(decided(Fleet((a_node(cpu="1"),), has, (waits,))), waits).reason is Reason.NO_FREE_CAPACITY


# Fair shares hold for any fleet of like jobs.

like_jobs = st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=4)


@given(like_jobs, st.integers(0, 12), st.integers(0, 10))
def test_nobody_envies_another_namespace_more_than_one_worker(found: dict[str, tuple[int, int]], free: int, seed: int) -> None:
    """`found` has running workers and waiting jobs by namespace: max-min fairness of things that can't be divided."""
    workers = tuple(a_worker(f"w-{n}-{i}", namespace=n) for n, (running, _) in found.items() for i in range(running))
    requests = [a_request(f"r-{n}-{i}", namespace=n) for n, (_, waiting) in found.items() for i in range(waiting)]
    random.Random(seed).shuffle(requests)
    given_places = places(decided(Fleet((a_node(cpu=str(len(workers) + free)),), workers, tuple(requests))))

    assert sum(given_places.values()) == min(free, len(requests))
    after = {n: running + given_places[n] for n, (running, _) in found.items()}
    waits = {n for n, (_, waiting) in found.items() if given_places[n] < waiting}
    for poor in waits:
        for rich in found:
            assert not given_places[rich] or after[rich] - 1 <= after[poor]


@given(like_jobs, st.integers(0, 12), st.integers(0, 10))
def test_the_order_of_the_snapshot_does_not_matter_to_shares(found: dict[str, tuple[int, int]], free: int, seed: int) -> None:
    workers = tuple(a_worker(f"w-{n}-{i}", namespace=n) for n, (running, _) in found.items() for i in range(running))
    requests = tuple(a_request(f"r-{n}-{i}", namespace=n) for n, (_, waiting) in found.items() for i in range(waiting))
    dice = random.Random(seed)
    node = a_node(cpu=str(len(workers) + free))
    shuffled = Fleet((node,), tuple(dice.sample(workers, len(workers))), tuple(dice.sample(requests, len(requests))))

    assert decided(shuffled) == decided(Fleet((node,), workers, requests))


# Caps: how much a namespace may have.


def test_no_more_workers_start_than_the_cap_lets_and_the_rest_is_told_so() -> None:
    has = (a_worker("w1", namespace="greedy", option=ON_GPU),)
    greedy = flood("greedy", 5, ON_GPU)
    decisions = decided(Fleet((a_node(cpu="8", gpu=8),), has, greedy), capped(max_devices={"gpu": 3}))

    assert places(decisions) == {"greedy": 2}
    told = pending_of(decisions, greedy[-1])
    assert (told.reason, told.final, told.position) == (Reason.NAMESPACE_CAPPED, False, None)
    assert "gpu: namespace greedy has 3 of at most 3 gpu workers (maxDevices)" in told.message
    assert "wait for one to end, end one, or ask the administrator to raise the cap in namespaceLimits" in told.message


def test_replicas_are_capped_over_all_classes_and_kinds_of_work() -> None:
    has = (a_worker("w1", namespace="greedy", option=ON_GPU),)
    service = replace(a_request("service", namespace="greedy", workers=9), holds=True)
    decisions = decided(Fleet((a_node(cpu="16", gpu=2),), has, (service, *flood("greedy", 9))), capped(max_replicas=4))

    assert places(decisions) == {"greedy": 3}
    assert "namespace greedy has 4 of at most 4 workers (maxReplicas)" in pending_of(decisions, service).message


def test_a_job_that_may_run_on_another_class_does_when_one_is_capped() -> None:
    either = a_request("either", ON_GPU, an_option("cpu"), namespace="greedy")
    decisions = decided(Fleet((a_node(cpu="8", gpu=8),), (), (either,)), capped(max_devices={"gpu": 0}))

    assert [one.accelerator for one in decisions[either.key].assignments] == ["cpu"]


def test_a_cap_of_one_class_is_told_where_another_class_has_no_room() -> None:
    either = a_request("either", ON_GPU, an_option("cpu", cpu="7"), namespace="greedy")
    decisions = decided(
        Fleet((a_node(cpu="8", gpu=8),), (a_worker(option=an_option(cpu="7")),), (either,)), capped(max_devices={"gpu": 0})
    )

    told = pending_of(decisions, either)
    assert told.reason is Reason.NO_FREE_CAPACITY
    assert "gpu: namespace greedy has 0 of at most 0 gpu workers" in told.message
    assert "cpu: 1 node(s) had insufficient cpu" in told.message or "insufficient cpu" in told.message.lower()


def test_what_a_cap_holds_back_keeps_no_room_from_others() -> None:
    """Each pass the greedy one may start one worker and asks for five hundred: planned, they would take every place in the plan."""
    greedy, modest = flood("greedy", 500, priority=9), tuple(a_request(f"m{i}", namespace="modest") for i in range(3))
    decisions = decided(Fleet((a_node(cpu="4"),), (), (*greedy, *modest)), capped(max_replicas=1))

    assert places(decisions) == {"greedy": 1, "modest": 3}


def test_large_work_that_a_cap_holds_back_gets_no_room_reserved() -> None:
    """Somebody else's work of the same requirements may have room reserved, on the other node."""
    nodes = (a_node("node-1", cpu="2"), a_node("node-2", cpu="2"))
    busy = tuple(a_running_work(f"busy-{n.name}", node=n.name, left=100.0, movable=False, namespace="modest") for n in nodes)
    holding = tuple(a_worker(f"w-{n.name}", namespace="modest", node=n.name) for n in nodes)
    large = a_request("large", an_option(cpu="2"), namespace="greedy", priority=9)
    other = a_request("other", an_option(cpu="2"), namespace="modest", priority=1)
    small = a_request("small", an_option(seconds=1000.0), namespace="modest")
    fleet = Fleet(nodes, holding, (large, other, small), busy)

    assert not decided(fleet)[small.key].assignments
    assert decided(fleet, capped(max_replicas=0))[small.key].assignments


def test_work_whose_planned_place_is_gone_takes_no_other_beyond_the_cap() -> None:
    on_gpu = an_option("gpu", cpu="0", gpu=1)
    first = a_request("first", on_gpu, namespace="greedy", priority=3)
    takes = a_request("takes", an_option(cpu="1.5"), namespace="modest", priority=2)
    either = a_request("either", an_option("cpu"), on_gpu, namespace="greedy")
    fleet = Fleet((a_node(cpu="2", gpu=2),), (), (first, takes, either))

    assert [one.accelerator for one in decided(fleet)[either.key].assignments] == ["gpu"]
    assert places(decided(fleet, capped(max_devices={"gpu": 1}))) == {"greedy": 1, "modest": 1}


def test_an_impossible_job_of_a_capped_namespace_hides_no_possible_one() -> None:
    impossible = flood("greedy", 5, an_option(cpu="1000"))
    possible = a_request("possible", namespace="greedy")
    decisions = decided(Fleet((a_node(),), (), (*impossible, possible)), capped(max_replicas=1))

    assert decisions[possible.key].assignments
    assert pending_of(decisions, impossible[0]).reason is Reason.NO_NODE_FITS


def test_large_work_that_waits_for_room_keeps_small_work_from_no_cap() -> None:
    large = a_request("large", an_option(cpu="2"), namespace="greedy", created_ago=99.0)
    small = a_request("small", namespace="greedy")
    busy = a_running_work(left=100.0, movable=False)
    decisions = decided(Fleet((a_node(cpu="2"),), (a_worker(),), (large, small), (busy,)), capped(max_replicas=1))

    assert decisions[small.key].assignments


def test_a_worker_out_of_reach_does_not_use_up_the_cap() -> None:
    nodes = (a_node("node-1"), replace(a_node("node-2"), reachable=False, ready=False))
    lost = a_worker("w1", namespace="greedy", node="node-2")
    decisions = decided(Fleet(nodes, (lost,), flood("greedy", 1)), capped(max_replicas=1))

    assert places(decisions) == {"greedy": 1}


@pytest.mark.parametrize("used", [0, 1, 2, 3])
def test_who_waits_behind_the_cap_is_told_the_same_whatever_room_comes_and_goes(used: int) -> None:
    """A namespace with ten thousand jobs at its cap would have them all written each time that one of its workers ends."""
    greedy = flood("greedy", 9)
    has = tuple(a_worker(f"w{i}", namespace="greedy" if i < used else "modest") for i in range(3))
    decisions = decided(Fleet((a_node(cpu="3"),), has, greedy), capped(max_replicas=3))

    reasons = [pending_of(decisions, request).reason for request in greedy]
    assert reasons == [Reason.NO_FREE_CAPACITY] * (3 - used) + [Reason.NAMESPACE_CAPPED] * (6 + used)


mixed = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.sampled_from(["cpu", "gpu", "either"]), st.integers(1, 3), st.none() | st.integers(20, 200)
    ),
    max_size=8,
)


@given(mixed, st.integers(0, 4), st.integers(0, 2), st.integers(0, 4))
def test_no_namespace_ever_has_more_than_its_caps(
    wanted: Iterable[tuple[str, str, int, int | None]], cores: int, devices: int, replicas: int
) -> None:
    options = {"cpu": (an_option("cpu"),), "gpu": (ON_GPU,), "either": (an_option("cpu"), ON_GPU)}
    requests = tuple(
        a_request(f"n{i}", *options[of_class], namespace=name, workers=workers, deadline_in=deadline)
        for i, (name, of_class, workers, deadline) in enumerate(wanted)
    )
    has = (a_worker("w1", namespace="a"), a_worker("w2", namespace="b", option=ON_GPU))
    limits = NamespaceLimits(default=Limits(max_devices={"cpu": cores, "gpu": devices}, max_replicas=replicas))
    decisions = decided(Fleet((a_node(cpu="6", gpu=3),), has, requests), limits)

    for name, of_class in (("a", "cpu"), ("b", "gpu")):
        used = Counter({of_class: 1})
        used.update(one.accelerator for key, d in decisions.items() if key.namespace == name for one in d.assignments)
        assert used["cpu"] <= max(cores, of_class == "cpu")
        assert used["gpu"] <= max(devices, of_class == "gpu")
        assert used.total() <= max(replicas, 1)


@given(mixed)
def test_a_namespace_alone_is_served_as_if_there_were_no_namespaces(wanted: Iterable[tuple[str, str, int, int | None]]) -> None:
    options = {"cpu": (an_option("cpu"),), "gpu": (ON_GPU,), "either": (an_option("cpu"), ON_GPU)}
    requests = tuple(
        a_request(f"n{i}", *options[of_class], workers=workers, deadline_in=deadline)
        for i, (_, of_class, workers, deadline) in enumerate(wanted)
    )
    fleet = Fleet((a_node(cpu="3", gpu=1),), (), requests)
    idle = replace(a_request("idle", an_option(node_selector={"no": "where"})), key=job_request(Key("other", "idle")), priority=0)
    beside = decided(replace(fleet, requests=(*requests, idle)))

    assert {key: found.assignments for key, found in beside.items() if key != idle.key} == {
        key: found.assignments for key, found in decided(fleet).items()
    }


# Preemption.


def full_of(namespace: str, count: int) -> Fleet:
    """A node with as many cores as work that runs there."""
    running = tuple(a_running_work(f"t{i}", namespace=namespace) for i in range(count))
    pods = tuple(a_worker(f"w{i}", namespace=namespace) for i in range(count))
    return Fleet((a_node(cpu=str(count)),), pods, (), running)


def urgent_jobs(namespace: str, count: int, priority: int = 0) -> tuple[PlacementRequest, ...]:
    return tuple(a_request(f"urgent-{i}", namespace=namespace, deadline_in=40.0, priority=priority) for i in range(count))


def preempted(decisions: dict[Request, Decision]) -> int:
    return sum(decision.preemption is not None for decision in decisions.values())


def test_a_namespace_preempts_only_so_often_in_an_hour_as_it_may() -> None:
    fleet = full_of("modest", 6)
    urgent = urgent_jobs("greedy", 6, priority=1000)
    fleet = replace(fleet, requests=urgent)

    assert preempted(decided(fleet)) == 6
    assert preempted(decided(fleet, capped(max_preemptions_per_hour=4))) == 4
    assert preempted(decided(replace(fleet, preemptions={"greedy": 3}), capped(max_preemptions_per_hour=4))) == 1


def test_who_may_not_preempt_any_more_is_told_why() -> None:
    fleet = full_of("modest", 1)
    (urgent,) = urgent_jobs("greedy", 1, priority=1000)
    decisions = decided(replace(fleet, requests=(urgent,)), capped(max_preemptions_per_hour=0))

    words = "namespace greedy may preempt work of other namespaces 0 times an hour (maxPreemptionsPerHour)"
    assert words in pending_of(decisions, urgent).message


def test_a_namespace_preempts_its_own_work_as_it_likes() -> None:
    fleet = full_of("greedy", 2)
    fleet = replace(fleet, requests=urgent_jobs("greedy", 2, priority=1))

    assert preempted(decided(fleet, capped(max_preemptions_per_hour=0))) == 2


def test_in_one_band_a_larger_share_preempts_no_smaller_one() -> None:
    """Tight deadlines would be a way round the fair share: a namespace that has most would take the rest by them."""
    fleet = full_of("modest", 1)
    mine = tuple(a_worker(f"g{i}", namespace="greedy") for i in range(3))
    fleet = replace(fleet, nodes=(a_node(cpu="4"),), pods=(*fleet.pods, *mine), requests=urgent_jobs("greedy", 1))

    assert preempted(decided(fleet)) == 0
    assert preempted(decided(replace(fleet, requests=urgent_jobs("newcomer", 1)))) == 1
    assert preempted(decided(replace(fleet, requests=urgent_jobs("greedy", 1, priority=1)))) == 1


def test_what_a_cap_holds_back_preempts_nothing() -> None:
    fleet = full_of("modest", 3)
    fleet = replace(fleet, requests=urgent_jobs("greedy", 3, priority=1000))

    assert preempted(decided(fleet, capped(max_replicas=0))) == 0
    assert preempted(decided(fleet, capped(max_devices={"cpu": 2}))) == 2
