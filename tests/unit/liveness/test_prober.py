"""The polls: whom they ask, what counts as silence, and who is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from inference_operator.liveness.patience import MOST_SECONDS
from inference_operator.liveness.prober import STEP_SECONDS, Prober
from inference_operator.runtime.pings import Word
from inference_operator.state.objects import Key, PodPhase
from inference_operator.state.store import Store
from inference_operator.workers.endpoints import desired
from tests.builders import NOW, a_job, a_node, a_pod, somebodys_pod
from tests.clock import Clock

JOB = a_job(serve=True)


class World:
    """Workers on two nodes, which answer at once unless they are in `silent` or `refusing`."""

    def __init__(self, *nodes: str) -> None:
        self.store, self.clock = Store(), Clock()
        self.woken: list[str] = []
        self.changes: list[set[str]] = []
        self.silent: set[str] = set()
        self.refusing: set[str] = set()
        self._asked: dict[str, bool] = {}
        self.connections = 0
        self.store.put_job(JOB)
        for node in set(nodes):
            self.store.nodes[node] = a_node(node)
        for number, node in enumerate(nodes, 1):
            self.store.put_pod(replace(a_pod(JOB, number, node=node, uid=f"w{number}"), address=f"10.0.0.{number}"))
        self.prober = Prober(self.store, self, self.clock, lambda pod: self.woken.append(pod.uid), self.wake_waiting)

    def wake_waiting(self) -> None:
        self.changes.append(set(self.store.silent_nodes))

    def ask(self, key: str, address: str) -> None:
        assert address.startswith("10.0.0.")
        self.connections += key not in self._asked
        self._asked.setdefault(key, True)
        self._asked[key] = True

    def forget(self, key: str) -> None:
        self._asked.pop(key, None)

    def collect(self) -> list[tuple[str, Word]]:
        due = [key for key, asked in self._asked.items() if asked and key not in self.silent]
        for key in due:
            self._asked[key] = False
        return [(key, Word.REFUSED if key in self.refusing else Word.ANSWERED) for key in due]

    def run(self, seconds: float) -> set[str]:
        for _ in range(round(seconds / STEP_SECONDS)):
            self.clock.seconds += STEP_SECONDS
            self.prober.step()
        return set(self.store.suspected)


def test_nobody_is_suspected_while_all_answer() -> None:
    world = World("a", "a", "b")

    assert world.run(60.0) == set()
    assert (world.woken, world.connections) == ([], 3)


def test_a_silent_worker_is_suspected_within_a_second_and_trusted_when_it_speaks() -> None:
    world = World("a", "a", "b")
    world.run(1.0)
    world.silent = {"w1"}

    assert world.run(0.5) == set()
    assert world.run(0.5) == {"w1"}
    assert world.woken == ["w1"]
    assert list(world.store.silent) == ["w1"]

    world.silent = set()
    assert world.run(1.0) == set()
    # Once more in between, as it answers and isn't trusted yet.
    assert world.woken == ["w1"] * 3
    assert not world.store.silent and not world.store.recovering


def test_a_suspected_worker_recovers_from_its_first_answer_and_not_while_it_is_silent() -> None:
    world = World("a", "b")
    for _ in range(4):
        world.run(1.0)
        world.silent = {"w1"}
        world.run(1.0)
        assert world.store.suspected == {"w1"} and not world.store.recovering
        world.silent = set()

    # It has been suspected so often that it has to answer for seconds before it is trusted.
    assert world.run(0.5) == {"w1"}
    assert world.store.recovering == {"w1"}
    world.silent = {"w1"}
    world.run(1.0)
    assert not world.store.recovering


def test_a_dead_node_is_suspected_with_all_its_workers() -> None:
    world = World("a", "a", "b", "b")
    world.run(1.0)
    world.silent = {"w1", "w2"}

    assert world.run(0.85) == {"w1", "w2"}


def test_a_refused_connection_counts_sooner_than_silence_and_one_is_nothing() -> None:
    world = World("a", "a", "b")
    world.run(1.0)
    world.refusing = {"w3"}
    assert world.run(0.25) == set()
    world.refusing = set()
    assert world.run(5.0) == set()

    world.refusing = {"w3"}
    assert world.run(0.6) == {"w3"}
    assert not world.store.silent, "its node lives, and its kubelet tells what became of it"


def test_a_node_is_silent_while_none_of_its_workers_has_answered_since_one_fell_silent() -> None:
    """A tenant's worker that hung, or answered late for want of CPU, took its node from all others."""
    world = World("a", "a", "b")
    world.run(1.0)
    world.silent = {"w1", "w3"}
    world.run(3.0)
    assert (sorted(world.store.silent), sorted(world.store.silent_nodes)) == (["w1", "w3"], ["b"])

    world.silent = {"w1", "w2", "w3"}
    world.run(1.0)
    assert world.store.silent_nodes == {"a", "b"}

    world.silent = set()
    world.run(2.0)
    assert world.store.silent_nodes == frozenset()
    assert world.changes[-1] == set(), "those who wait for a place there are told"


def test_a_worker_that_hangs_alone_bars_its_node_until_the_control_plane_would_have_heard_of_its_death() -> None:
    world = World("a", "a", "b")
    world.run(1.0)
    world.silent = {"w3"}
    world.run(100.0)
    assert world.store.silent_nodes == {"b"}

    world.run(30.0)
    assert world.store.silent_nodes == frozenset()
    assert world.changes[-1] == set() and list(world.store.silent) == ["w3"]

    world.store.nodes["b"] = replace(world.store.nodes["b"], ready=False)
    world.run(1.0)
    assert world.store.silent_nodes == {"b"}


def test_a_pause_of_the_operator_makes_nobody_suspected() -> None:
    world = World("a", "a", "b")
    world.run(1.0)
    world.clock.seconds += 30.0

    assert world.run(5.0) == set()
    assert world.woken == []


def test_an_operator_that_hears_nobody_suspects_nobody() -> None:
    world = World("a", "b", "c")
    world.run(1.0)
    world.silent = {"w1", "w2", "w3"}

    assert world.run(60.0) == set()


def test_a_worker_that_answers_late_stays_suspected() -> None:
    """A slow node's answers, each of which takes 0.8 s, must not take it back among the others."""
    world = World("a", "a", "b")
    world.run(1.0)
    world.silent = {"w1"}
    world.run(1.0)
    for _ in range(10):
        world.silent = {"w1"}
        assert world.run(0.8) == {"w1"}
        world.silent = set()
        assert world.run(STEP_SECONDS) == {"w1"}


def test_silence_makes_the_connection_anew() -> None:
    """TCP repeats ever more rarely: a network that was cut for a minute would be heard of a minute late."""
    world = World("a", "a", "b")
    world.run(1.0)
    world.silent = {"w1"}
    world.run(10.0)

    assert 8 <= world.connections - 3 <= 12


def test_only_ready_workers_are_polled_and_those_that_leave_are_suspected_no_more() -> None:
    world = World("a", "a", "b")
    world.run(1.0)
    world.silent = {"w1"}
    world.run(1.0)
    key = next(key for key, pod in world.store.pods.items() if pod.uid == "w1")
    world.store.mark_deleting(Key(*key), "w1")

    assert world.run(0.5) == set()


def test_a_worker_that_never_spoke_is_not_suspected() -> None:
    """A network policy that keeps the operator away, or a worker of a version without that port, harms nobody."""
    world = World("a", "a", "b")
    world.silent, world.refusing = {"w1", "w3"}, {"w2"}

    assert world.run(60.0) == set()
    # One on the same node tells nothing of the way there.
    world.silent = {"w3"}
    world.refusing = set()
    world.run(1.0)
    near = World("a", "a")
    near.silent = {"w1"}
    assert near.run(60.0) == set()


def test_a_worker_that_never_spoke_is_suspected_where_one_like_it_does_on_another_node() -> None:
    """The network of a node is broken for new pods: its kubelet says that they are ready, and nobody reaches them."""
    world = World("a", "b")
    world.silent = {"w1"}
    assert world.run(9.0) == set()
    assert world.run(2.0) == {"w1"}
    assert (list(world.store.silent), world.store.silent_nodes) == (["w1"], frozenset("a"))

    world.silent = set()
    assert world.run(2.0) == set()


def test_a_worker_of_another_revision_tells_nothing_of_one_that_never_spoke() -> None:
    world = World("a", "b")
    pod = next(pod for pod in world.store.pods.values() if pod.uid == "w1")
    assert pod.worker is not None
    world.store.put_pod(replace(pod, worker=replace(pod.worker, revision="other labels"), resource_version="2"))
    world.silent = {"w1"}

    assert world.run(60.0) == set()


def test_who_cuts_the_only_worker_off_that_tells_of_others_takes_nobodys_requests() -> None:
    """While the one that answers is suspected itself, the others are not."""
    world = World("a", "b")
    world.silent = {"w1"}
    world.run(9.0)
    world.silent = {"w1", "w2"}

    assert world.run(5.0) == {"w2"}


def test_a_worker_that_comes_and_goes_alone_on_a_node_takes_it_from_all_others_for_minutes_at_most() -> None:
    """A tenant's own pod, with a label and an owner reference to its job, needs no device for it."""
    world = World("a", "b", "c")
    world.run(2.0)
    barred, hour = 0.0, 3600.0
    for _ in range(round(hour / 0.5)):
        # Silent until it bars the node no more, trusted and calm again, and so on.
        suspected = "w1" in world.store.suspected
        world.silent = {"w1"} if not suspected or "a" in world.store.silent_nodes else set()
        world.run(0.5)
        barred += 0.5 * ("a" in world.store.silent_nodes)

    assert MOST_SECONDS <= barred <= 2.1 * MOST_SECONDS


def test_a_node_that_was_silent_for_long_is_barred_again_after_an_hour() -> None:
    world = World("a", "b", "c")
    world.run(2.0)
    for quiet in (True, False, True):
        world.silent = {"w1"} if quiet else set()
        world.run(10.0)
        assert ("a" in world.store.silent_nodes) == quiet
        world.run(300.0 if quiet else 3600.0)
        assert "a" not in world.store.silent_nodes


def test_who_answers_is_known_and_who_falls_silent_or_goes_is_not() -> None:
    world = World("a", "a", "b")
    world.run(1.0)
    assert world.store.heard == {"w1", "w2", "w3"}

    world.silent = {"w1"}
    world.run(1.0)
    assert world.store.heard == {"w2", "w3"}
    world.silent = set()
    world.run(1.0)
    assert world.store.heard == {"w1", "w2", "w3"}

    world.store.drop_pod(next(pod.key for pod in world.store.pods.values() if pod.uid == "w3"), "w3")
    world.run(0.5)
    assert world.store.heard == {"w1", "w2"}


def test_a_worker_whose_node_the_control_plane_lost_is_still_asked() -> None:
    """It is said not to be ready then, which is hearsay."""
    world = World("a", "b")
    world.run(1.0)
    pod = next(pod for pod in world.store.pods.values() if pod.uid == "w1")
    world.store.put_pod(replace(pod, ready=False, containers_ready=True, resource_version="2"))
    world.run(1.0)
    assert "w1" in world.store.heard

    world.silent = {"w1"}
    assert world.run(1.0) == {"w1"}


def test_an_answer_from_a_later_workers_address_is_none_of_the_earlier_one() -> None:
    """Networks give addresses again, also that of a pod whose node can't say that it is gone."""
    world = World("a", "b")
    world.run(1.0)
    later = replace(a_pod(JOB, 3, node="b", uid="w3"), address="10.0.0.1", created=NOW + timedelta(hours=1))
    world.store.put_pod(later)

    assert world.run(1.5) == {"w1"}
    assert "w1" not in world.store.heard and "w3" in world.store.heard


def test_a_worker_whose_address_another_pod_has_by_now_is_sent_no_request_though_it_is_the_only_one() -> None:
    """The pod may be another tenant's, and answers: callers were sent there, since suspicion alone empties no Service."""
    world = World("a")
    (worker,) = world.store.pods.values()
    world.store.services[Key(JOB.key.namespace, JOB.key.name)] = JOB.uid
    world.run(1.0)
    made = NOW + timedelta(hours=1)
    theirs = replace(worker, key=Key("others", "theirs"), uid="theirs", worker=None, node="b", created=made)
    for over, callers in ((replace(theirs, phase=PodPhase.SUCCEEDED), [worker.uid]), (replace(theirs, resource_version="2"), [])):
        world.store.put_pod(over)
        world.run(0.3)
        (seen,) = world.store.observe_endpoints(JOB.key)

        assert [one.uid for _, _, found in desired(seen).values() for one in found] == callers
    assert world.woken == [worker.uid]
    assert world.run(1.0) == {worker.uid}

    world.store.mark_deleting(worker.key, worker.uid)
    world.run(0.3)
    (seen,) = world.store.observe_endpoints(JOB.key)
    assert not desired(seen), "it takes no requests until its successor is there either"


def test_a_worker_that_answered_is_asked_on_when_its_kubelet_takes_it_for_not_ready() -> None:
    world = World("a", "b")
    world.run(1.0)
    world.store.put_pod(replace(world.store.pods[a_pod(JOB, 1).key], ready=False, containers_ready=False))
    world.store.put_pod(replace(a_pod(JOB, 3, node="b", uid="w3", ready=False), address="10.0.0.3", containers_ready=False))
    world.run(1.0)

    assert world.store.heard == {"w1", "w2"}


def test_a_worker_leaves_its_address_to_a_pod_that_waited_longer_for_its_node() -> None:
    """The network gives it anew to a pod that is older, and whose node is younger: callers would reach somebody else's."""
    world = World("a", "b")
    world.run(1.0)
    older = replace(somebodys_pod("older", node="b"), created=NOW - timedelta(hours=1), bound_since=NOW)
    world.store.put_pod(replace(older, address="10.0.0.1"))
    world.run(1.0)

    assert world.store.displaced == {"w1"}
