"""Nodes that fall silent: who calls a service is sent elsewhere within the bound, and back when they speak."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from tests.simulation.api import At, Raw
from tests.simulation.cluster import Script
from tests.simulation.world import World

BOUND_SECONDS = 1.0


def a_service(*nodes: str) -> World:
    """One worker on each node."""
    world = World()
    world.polled = True
    for node in nodes:
        world.node(node, cpu=2)
    world.model(seconds={"cpu": 30.0})
    world.job("s", batch=False, replicas=len(nodes), resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2"}})
    return world


def when(world: World, holds: Callable[[], bool], found: list[float]) -> None:
    """Note when a thing begins to hold, each time."""
    held = [holds()]

    def look(_: str, plural: str, __: Raw) -> None:
        if plural == "endpointslices" and holds() != held[0]:
            held[0] = not held[0]
            if held[0]:
                found.append(asyncio.get_running_loop().time())

    world.api.watch(look)


def test_a_silent_node_leaves_the_endpoints_within_a_second_and_comes_back() -> None:
    world, left, back = a_service("a", "b"), list[float](), list[float]()
    world.at(19.0, lambda: when(world, lambda: world.taking("s") == {"b"}, left))
    world.at(19.0, lambda: when(world, lambda: world.taking("s") == {"a", "b"}, back))
    world.at(20.0, lambda: world.silent.add("a"))
    world.at(30.0, world.silent.clear)
    world.run(60.0)

    assert [20.0 < left[0] <= 20.0 + BOUND_SECONDS, 30.0 < back[0] <= 30.0 + 2 * BOUND_SECONDS] == [True, True], (left, back)
    assert (len(left), len(back)) == (1, 1)
    # Nothing was deleted, and nobody was put in its place: there is no room.
    assert (world.created("s"), sum(world.deleted.values())) == (2, 0)


def test_suspicion_alone_never_empties_a_service() -> None:
    world = a_service("a", "b")
    world.at(20.0, lambda: world.silent.update("ab"))
    world.run(60.0)

    assert world.taking("s") == {"a", "b"}


def test_a_silent_worker_has_a_successor_at_once_where_there_is_room() -> None:
    world, begun = a_service("a", "b"), list[int]()
    world.node("c", cpu=2)
    world.at(20.0, lambda: world.silent.add("a"))
    world.at(20.0 + BOUND_SECONDS, lambda: begun.append(world.created("s")))
    world.run(60.0)

    assert begun == [3] and world.taking("s") == {"b", "c"}


def test_the_only_worker_of_a_service_has_a_successor_too() -> None:
    world = a_service("a")
    world.node("c", cpu=2)
    world.at(20.0, lambda: world.silent.add("a"))
    world.run(60.0)

    assert world.taking("s") == {"c"}


def test_a_worker_that_answers_again_before_its_successor_stays() -> None:
    world = a_service("a", "b")
    world.node("c", cpu=2)
    world.at(20.0, lambda: world.silent.add("a"))
    world.at(21.5, world.silent.clear)
    world.run(60.0)

    assert world.taking("s") == {"a", "b"}
    assert (world.created("s"), sum(world.deleted.values())) == (3, 1)


def test_a_worker_that_hangs_takes_its_node_from_nobody() -> None:
    world, cpu = World(), {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    world.polled = True
    world.node("a")
    world.model(seconds={"cpu": 30.0})
    for name in ("hangs", "answers"):
        world.job(name, batch=False, resources=cpu)
    world.at(20.0, lambda: world.silent.update(raw["metadata"]["uid"] for raw in world.workers("hangs")))
    world.job("new", at=30.0, resources=cpu)
    world.run(60.0)

    assert world.status("new")["phase"] == "Running"


def test_a_worker_that_nobody_ever_reached_is_replaced_on_another_node() -> None:
    """Its kubelet says that it is ready, and the network of its node is broken for new pods."""
    world = a_service("a", "b")
    world.node("c", cpu=2, at=5.0)
    world.silent.add("a")
    world.run(60.0)

    assert (world.taking("s"), world.created("s")) == ({"b", "c"}, 3)


def test_where_no_other_node_has_room_it_stays_and_takes_no_requests() -> None:
    world = a_service("a", "b")
    world.silent.add("a")
    world.run(900.0)

    assert (world.taking("s"), world.created("s")) == ({"b"}, 2)


def falls_silent(world: World, name: str) -> None:
    """Each worker of a job answers for some seconds, and never again: one that lies, or that its own work starves."""
    seen = set[str]()

    def look() -> None:
        there = {raw["metadata"]["uid"] for raw in world.answering(name)}
        world.silent.update(there & seen)
        seen.update(there)

    for step in range(300):
        world.at(10.0 + 2 * step, look)


def test_workers_that_fall_silent_in_turn_are_followed_ever_later() -> None:
    """Each had a successor at once: a worker in six seconds, for ever, and no status told of it."""
    world = a_service("a")
    for node in "bc":
        world.node(node, cpu=2)
    world.job("b", resources={"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})
    world.scripts["b"] = Script(work=1e6)
    for name in "sb":
        falls_silent(world, name)
    world.run(600.0)

    assert (4 <= world.created("s") <= 12, 4 <= world.created("b") <= 12) == (True, True)


def out_of_reach(world: World, name: str) -> None:
    """What the node controller does about a node that it does not hear of."""
    node = world.api.objects[At("nodes", "", name)]
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    unknown = [{"type": "Ready", "status": "Unknown"}]
    world.api.put(At("nodes", "", name), {**node, "spec": {"taints": [taint]}, "status": {**node["status"], "conditions": unknown}})
    for at, pod in [
        (at, pod) for at, pod in world.api.objects.items() if at.plural == "pods" and pod["spec"].get("nodeName") == name
    ]:
        conditions = [{**c, "status": "False"} if c["type"] == "Ready" else c for c in pod["status"]["conditions"]]
        world.api.put(at, {**pod, "status": {**pod["status"], "conditions": conditions}})


def test_work_that_answers_goes_on_where_the_control_plane_lost_its_nodes() -> None:
    """An API server that was away for a minute made a batch begin anew, and took workers from their callers."""
    world, seen = a_service("a", "b"), list[set[str]]()
    world.node("c", cpu=1)
    world.job("batch", at=10.0)
    world.at(19.0, lambda: seen.append(world.taking("s")))
    for name in "abc":
        world.at(20.0, partial(out_of_reach, world, name))
    world.at(25.0, lambda: seen.append(world.taking("s")))
    world.run(60.0)

    assert seen == [{"a", "b"}] * 2
    assert (world.created("s"), world.created("batch")) == (2, 1)


def test_work_that_falls_silent_where_the_control_plane_lost_its_node_is_given_up_at_once() -> None:
    world, seen = a_service("a", "b"), list[int]()
    world.node("c", at=10.0)
    world.at(20.0, lambda: out_of_reach(world, "a"))
    world.at(30.0, lambda: world.silent.add("a"))
    for second in (29.0, 31.0):
        world.at(second, lambda: seen.append(world.created("s")))
    world.run(60.0)

    assert seen == [2, 3]


def test_one_that_is_silent_for_a_moment_after_an_outage_is_not_ended() -> None:
    """Nodes count as out of reach for a while then. A worker that hung for four seconds was ended, and it was the last one."""
    world = a_service("a")
    world.at(20.0, partial(out_of_reach, world, "a"))
    world.at(30.0, lambda: world.silent.add("a"))
    world.at(34.0, world.silent.clear)
    world.run(60.0)

    assert (world.taking("s"), sum(world.deleted.values())) == ({"a"}, 0)


def test_one_that_stays_silent_on_a_node_out_of_reach_is_lost() -> None:
    world, gone = a_service("a"), list[int]()
    world.at(20.0, partial(out_of_reach, world, "a"))
    world.at(30.0, lambda: world.silent.add("a"))
    for second in (39.0, 45.0):
        world.at(second, lambda: gone.append(sum(world.deleted.values())))
    world.run(60.0)

    assert gone == [0, 1]


def test_a_worker_that_is_told_to_stop_takes_no_new_requests() -> None:
    world, left = a_service("a", "b"), list[float]()
    world.at(19.0, lambda: when(world, lambda: len(world.taking("s")) == 1, left))
    world.change("s", at=20.0, replicas=1)
    world.run(20.5)

    (ended,) = [conditions for conditions in world.endpoints("s").values() if not conditions["ready"]]
    assert ended == {"ready": False, "serving": True, "terminating": True}
    assert left[0] <= 20.2


def test_a_service_with_a_selector_is_taken_over_without_a_gap() -> None:
    """The operator of the version before made it: Kubernetes' slices go only once ours are there."""
    world, least = a_service("a", "b"), [2]
    world.at(20.0, lambda: hand_to_kubernetes(world))
    world.at(20.0, lambda: world.api.watch(lambda *_: least.append(len(reached(world)))))
    world.at(20.1, world.crash)
    world.run(60.0)

    assert min(least) == 2
    assert "selector" not in world.api.objects[At("services", "default", "s")]["spec"]
    assert [at.name for at in world.api.all("endpointslices")] == ["s-ipv4-0"]
    assert world.api.all("endpoints") == {}


def hand_to_kubernetes(world: World) -> None:
    """What Kubernetes' controllers make of a Service with a selector, in place of what we made."""
    at = At("services", "default", "s")
    raw = world.api.objects[at]
    (mine,) = world.api.all("endpointslices")
    ours = world.api.objects[mine]
    world.api.put(at, {**raw, "spec": {**raw["spec"], "selector": {"x": "y"}}})
    labels = {**ours["metadata"]["labels"], "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
    owners = [{"kind": "Service", "name": "s", "uid": raw["metadata"]["uid"], "controller": True}]
    theirs = {**ours, "metadata": {"name": "s-x7k2p", "labels": labels, "ownerReferences": owners}}
    world.api.put(At("endpointslices", "default", "s-x7k2p"), theirs)
    world.api.put(At("endpoints", "default", "s"), {"metadata": {"name": "s", "labels": labels}, "subsets": []})
    world.api.remove(mine)


def reached(world: World) -> set[str]:
    return {one["nodeName"] for raw in world.api.all("endpointslices").values() for one in raw["endpoints"]}
