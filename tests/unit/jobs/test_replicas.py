"""Workers of a serving job: how many there should be, which are old, which are too many, and what has failed."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_operator.api.job import Serve, wanted_replicas
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, InferenceJobStatus
from inference_operator.jobs.replicas import Replicas, replicas
from inference_operator.state.objects import Job, Pod, PodPhase, PodProblem
from inference_operator.state.runner import is_running
from inference_protocol.reasons import WorkerReason
from tests.builders import NOW, SETTINGS, a_job, a_pod, a_report, observed, resolved_of, whole

FAILED = PodPhase.FAILED


def a_service(replicas: int = 2, *, attempts: int = 0, failed_attempts: int = 0) -> Job:
    status = InferenceJobStatus(attempts=attempts, failed_attempts=failed_attempts)
    return a_job(serve=True, replicas=replicas, status=status)


def sorted_out(job: Job, *pods: Pod) -> Replicas:
    seen = observed(job, *pods)
    return replicas(seen, resolved_of(seen), SETTINGS, NOW)


def numbers(pods: tuple[Pod, ...]) -> list[int]:
    return [pod.worker.number for pod in pods if pod.worker is not None]


@pytest.mark.parametrize(
    ("asked", "serve", "wanted"),
    [
        (3, None, 3),
        (0, None, 1),
        (0, Serve(min_replicas=0), 0),
        (1, Serve(min_replicas=2), 2),
        (9, Serve(max_replicas=4), 4),
        (5, Serve(min_replicas=0, max_replicas=9), 5),
    ],
)
def test_replicas_stay_within_the_bounds_of_serve(asked: int, serve: Serve | None, wanted: int) -> None:
    spec = a_job(serve=serve or True, replicas=asked).spec
    assert spec is not None
    assert wanted_replicas(spec) == wanted


def test_a_new_job_misses_all_its_workers() -> None:
    state = sorted_out(a_service(3))

    assert (state.missing, state.next_number) == (3, 1)


def test_workers_are_sorted_by_their_state() -> None:
    job = a_service(2)
    state = sorted_out(
        job,
        a_pod(job, 5, deleting=True),
        a_pod(job, 4, phase=FAILED, report=a_report("Failed")),
        a_pod(job, 3, phase=PodPhase.PENDING),
        a_pod(job, 2),
        a_pod(job, 1, revision="old"),
    )

    assert numbers(state.current) == [2, 3]
    assert numbers(state.stale) == [1]
    assert numbers(state.failed) == [4]
    assert numbers(state.ready) == [2]
    assert numbers(state.serving) == [2, 1]
    assert (state.missing, state.next_number) == (0, 6)


def moving(job: Job, *pods: Pod, uids: frozenset[str]) -> Replicas:
    seen = replace(observed(job, *pods), moving=uids)
    return replicas(seen, resolved_of(seen), SETTINGS, NOW)


def test_a_worker_on_a_node_that_is_about_to_go_stays_until_its_successor_answers() -> None:
    job = a_service(1)
    old = replace(a_pod(job, 1, ready=True), uid="old")
    new = a_pod(job, 2, ready=False)

    alone = moving(job, old, uids=frozenset({"old"}))
    starting = moving(job, old, new, uids=frozenset({"old"}))
    started = moving(job, old, replace(new, ready=True), uids=frozenset({"old"}))

    assert (alone.missing, alone.superfluous, starting.missing, starting.superfluous) == (1, (), 0, ())
    assert numbers(started.superfluous) == [1]


def test_a_worker_on_a_node_that_is_about_to_go_makes_no_room_by_its_end() -> None:
    job = a_service(1)
    old = replace(a_pod(job, 1, ready=True), uid="old")

    state = moving(job, old, uids=frozenset({"old"}))

    assert state.stays and not state.may_make_room


def test_a_node_that_is_used_again_keeps_its_worker() -> None:
    job = a_service(1)
    old, new = a_pod(job, 1, ready=True), a_pod(job, 2, ready=False)

    assert numbers(moving(job, old, new, uids=frozenset()).superfluous) == [2]


def silent(job: Job, *pods: Pod, uids: frozenset[str]) -> Replicas:
    seen = replace(observed(job, *pods), silent=uids)
    return replicas(seen, resolved_of(seen), SETTINGS, NOW)


def test_a_worker_that_does_not_answer_gets_a_successor_and_goes_when_that_answers() -> None:
    job = a_service(2)
    dead, other = replace(a_pod(job, 1, ready=True), uid="dead"), a_pod(job, 2, ready=True)
    new = a_pod(job, 3, ready=False)
    uids = frozenset({"dead"})

    alone = silent(job, dead, other, uids=uids)
    starting = silent(job, dead, other, new, uids=uids)
    started = silent(job, dead, other, replace(new, ready=True), uids=uids)

    assert (alone.missing, alone.superfluous, starting.missing, starting.superfluous) == (1, (), 0, ())
    assert numbers(started.superfluous) == [1]


def test_a_wrong_suspicion_costs_the_successor_and_not_the_worker() -> None:
    job = a_service(1)
    old, new = a_pod(job, 1, ready=True), a_pod(job, 2, ready=False)

    assert numbers(silent(job, old, new, uids=frozenset()).superfluous) == [2]


def test_of_old_workers_the_one_that_does_not_answer_goes_first() -> None:
    job = a_service(2)
    dead = replace(a_pod(job, 1, revision="old", ready=True), uid="dead")
    old, new = a_pod(job, 2, revision="old", ready=True), a_pod(job, 3, ready=True)

    assert numbers(silent(job, dead, old, new, uids=frozenset({"dead"})).superfluous) == [1]


def test_beside_a_worker_that_does_not_answer_the_last_one_makes_no_room() -> None:
    job = a_service(2)
    dead = replace(a_pod(job, 1, revision="old", ready=True), uid="dead")
    old = a_pod(job, 2, revision="old", ready=True)

    assert replace(silent(job, old, dead, uids=frozenset()), most=1).may_make_room
    assert not replace(silent(job, old, dead, uids=frozenset({"dead"})), wanted=3).may_make_room


def test_numbers_are_never_used_twice() -> None:
    assert sorted_out(a_service(1, attempts=7)).next_number == 8


# Too many.


def test_scaling_down_takes_the_newest_and_those_that_do_not_answer_first() -> None:
    job = a_service(2)
    four = (a_pod(job, 1), a_pod(job, 2, phase=PodPhase.PENDING), a_pod(job, 3), a_pod(job, 4))

    assert sorted(numbers(sorted_out(job, *four).superfluous)) == [2, 4]


def test_scaling_to_zero_takes_all() -> None:
    job = a_job(serve=Serve(min_replicas=0), replicas=0)

    assert numbers(sorted_out(job, a_pod(job, 1), a_pod(job, 2, revision="old")).superfluous) == [2, 1]


@pytest.mark.parametrize(("ready", "superfluous"), [(0, []), (1, [2]), (2, [1, 2])])
def test_old_workers_go_as_new_ones_answer(ready: int, superfluous: list[int]) -> None:
    job = a_service(2)
    old = [a_pod(job, n, revision="old") for n in (1, 2)]
    new = [a_pod(job, n, phase=PodPhase.RUNNING if n <= 2 + ready else PodPhase.PENDING) for n in (3, 4)]

    assert sorted(numbers(sorted_out(job, *old, *new).superfluous)) == superfluous


def test_an_old_worker_that_does_not_answer_goes_first() -> None:
    job = a_service(2)
    old = [a_pod(job, 1, revision="old", phase=PodPhase.PENDING), a_pod(job, 2, revision="old")]

    assert numbers(sorted_out(job, *old, a_pod(job, 3)).superfluous) == [1]


answering = st.lists(st.tuples(st.sampled_from(["old", None]), st.booleans()), max_size=8)


@given(answering, st.integers(1, 4))
def test_what_is_taken_away_never_leaves_fewer_answering_than_wanted(states: list[tuple[str | None, bool]], wanted: int) -> None:
    job = a_service(wanted)
    pods = [
        a_pod(job, n, revision=old, phase=PodPhase.RUNNING if runs else PodPhase.PENDING)
        for n, (old, runs) in enumerate(states, start=1)
    ]
    state = sorted_out(job, *pods)
    left = [pod for pod in state.serving if pod not in state.superfluous]

    assert len(left) >= min(wanted, len(state.serving))


def test_one_that_fell_silent_in_its_first_minute_stays_while_it_alone_takes_requests() -> None:
    """It went for an older one that wasn't ready: a service lost its last worker by a suspicion that may be wrong."""
    job = a_service(1)
    older, alone = a_pod(job, 1, ready=False), replace(a_pod(job, 2), uid="silent")

    assert numbers(silent(job, older, alone, uids=frozenset({"silent"})).superfluous) == []
    assert numbers(silent(job, replace(older, ready=True), alone, uids=frozenset({"silent"})).superfluous) == [2]


workers = st.lists(
    st.tuples(
        st.sampled_from(["answers", "silent", "moving", "unready", "starting", "old", "going"]), st.sampled_from([8.0, 90.0])
    ),
    max_size=6,
)


@settings(max_examples=500)
@given(st.integers(1, 4), workers)
def test_neither_suspicion_nor_a_node_that_goes_takes_the_last_that_runs(wanted: int, states: list[tuple[str, float]]) -> None:
    job, pods = a_service(wanted), list[Pod]()
    for number, (kind, ago) in enumerate(states, 1):
        phase = PodPhase.PENDING if kind == "starting" else PodPhase.RUNNING
        revision = "old" if kind == "old" else None
        pod = a_pod(job, number, phase=phase, revision=revision, deleting=kind == "going", created_ago=ago, uid=f"{kind}-{number}")
        pods.append(replace(pod, ready=pod.ready and kind != "unready"))
    uids = {kind: frozenset(pod.uid for pod in pods if pod.uid.startswith(kind)) for kind in ("silent", "moving")}
    seen = replace(observed(job, *pods), silent=uids["silent"], moving=uids["moving"])
    state = replicas(seen, resolved_of(seen), SETTINGS, NOW)

    running = [pod for pod in pods if is_running(pod)]
    left = [pod for pod in running if pod not in state.superfluous]
    heard = [pod for pod in running if pod.uid not in state.silent]
    assert bool(left) is bool(running)
    assert sum(pod in left for pod in heard) >= min(wanted, len(heard))


# Faults.


def a_failure(job: Job, number: int, reason: WorkerReason = WorkerReason.INTERNAL, *, ended_ago: float = 1) -> Pod:
    return a_pod(job, number, phase=FAILED, report=a_report("Failed", reason=reason), ended_ago=ended_ago)


def test_a_fault_is_the_newest_failure_of_the_present_revision() -> None:
    job = a_service(1)
    old = a_pod(job, 3, phase=FAILED, report=a_report("Failed"), revision="old")

    state = sorted_out(job, a_failure(job, 1), a_failure(job, 2, WorkerReason.OUT_OF_MEMORY), old)

    assert state.fault is not None and state.fault.reason is WorkerReason.OUT_OF_MEMORY


@pytest.mark.parametrize(("ended_ago", "answers_for", "over"), [(1, 59, False), (1, 60, True), (3, 5, True)])
def test_a_fault_is_over_once_a_later_worker_answers_and_the_pause_is_over_or_it_has_settled(
    ended_ago: float, answers_for: float, *, over: bool
) -> None:
    """Two workers that end by turns at their first request would each end the other's pause."""
    job = a_service(2)
    broken = a_failure(job, 1, ended_ago=ended_ago)
    later = replace(a_pod(job, 2, created_ago=900), ready_since=whole(NOW - timedelta(seconds=answers_for)))

    assert (sorted_out(job, broken, later).fault is None) == over


def test_a_fault_is_not_over_for_an_older_worker_that_answers() -> None:
    job = a_service(1)

    assert sorted_out(job, a_pod(job, 1, created_ago=900), a_failure(job, 2, ended_ago=900)).fault is not None


def test_a_drained_or_preempted_worker_is_no_fault() -> None:
    job = a_service(1)
    drained = a_pod(job, 1, phase=PodPhase.SUCCEEDED, report=a_report("Drained"))
    preempted = a_pod(job, 2, phase=FAILED, problem=PodProblem("Evicted", ""))

    state = sorted_out(job, drained, preempted)

    assert state.fault is None and state.failed == ()
    assert numbers(state.ended) == [1, 2]


@pytest.mark.parametrize(("before", "pause"), [(0, 0), (1, 2), (2, 4)])
def test_a_node_that_turns_workers_away_gets_them_ever_less_often(before: int, pause: float) -> None:
    job = a_service(1, failed_attempts=before)
    away = replace(a_pod(job, 1, phase=FAILED, problem=PodProblem("UnexpectedAdmissionError", "")), started=None, ended=None)
    assert away.created is not None

    state = sorted_out(job, away)

    assert (numbers(state.failed), state.retry) == ([1], away.created + timedelta(seconds=pause))


def test_a_worker_that_failed_before_its_own_container_ran_is_followed_after_its_pause() -> None:
    """No container of its own says when it ended: a pause that was counted from each look was never over."""
    job = a_service(1)
    init = PodProblem("Error", "no such file", container="fetch")
    pod = replace(a_pod(job, 1, phase=FAILED, problem=init, created_ago=900), started=None, ended=None)

    state = sorted_out(job, pod)

    assert state.fault is not None and state.retry is not None and state.retry < NOW


def test_a_node_whose_clock_is_ahead_keeps_no_worker_from_being_followed() -> None:
    job = a_service(1, failed_attempts=1)
    pod = a_pod(job, 1, phase=FAILED, report=a_report("Failed"), ended_ago=-3600)
    assert pod.created is not None

    assert sorted_out(job, pod).retry == pod.created + timedelta(seconds=4)


@pytest.mark.parametrize(("failures", "pause", "pause_of_permanent"), [(0, 2, 2), (3, 16, 16), (7, 120, 256), (99, 120, 300)])
def test_a_file_that_is_restored_is_looked_for_soon_and_ever_less_often(
    failures: int, pause: float, pause_of_permanent: float
) -> None:
    job = a_service(1, failed_attempts=failures)
    pod, missing = a_failure(job, 1), a_failure(job, 1, WorkerReason.MODEL_NOT_FOUND)
    assert pod.ended is not None

    assert sorted_out(job, pod).retry == pod.ended + timedelta(seconds=pause)
    assert sorted_out(job, missing).retry == pod.ended + timedelta(seconds=pause_of_permanent)


@pytest.mark.parametrize(("told", "untold"), [(None, 2), (2, 1), (1, 1)])
def test_each_worker_that_failed_is_counted_once(told: int | None, untold: int) -> None:
    """Two that failed together counted as one, and one that failed after its successor as none."""
    last = AttemptStatus(number=told, pod="p", outcome=AttemptOutcome.FAILED) if told is not None else None
    job = a_service(2)
    job = replace(job, status=replace(job.status, last_attempt=last))

    assert sorted_out(job, a_failure(job, 1), a_failure(job, 2)).untold == untold


def test_the_pause_doubles_for_each_round_of_failures_and_not_for_each_worker() -> None:
    alone, many = a_service(1), a_service(4)
    first = sorted_out(alone, a_failure(alone, 1))
    together = sorted_out(many, *(a_failure(many, number) for number in range(1, 5)))

    assert first.retry is not None and together.retry == first.retry


OLD = 400.0


def test_workers_on_one_node_may_be_spread_once_the_last_of_them_is_old_enough() -> None:
    job = a_service(2)
    first, second = a_pod(job, 1, created_ago=OLD), a_pod(job, 2, created_ago=100.0)

    assert second.created is not None
    assert sorted_out(job, first, second).spreads == second.created + timedelta(seconds=SETTINGS.spread_after_seconds)


@pytest.mark.parametrize(
    "changes",
    [
        {"node": "node-2"},
        {"phase": PodPhase.PENDING},
        {"revision": "old"},
        {"deleting": True},
        {"phase": FAILED, "report": a_report("Failed")},
    ],
)
def test_workers_on_several_nodes_and_services_that_are_not_whole_are_not_spread(changes: dict[str, Any]) -> None:
    job = a_service(2)

    assert sorted_out(job, a_pod(job, 1, created_ago=OLD), a_pod(job, 2, created_ago=OLD, **changes)).spreads is None


@pytest.mark.parametrize(
    ("ended_ago", "number", "pause"), [(100.0, 3, 300.0), (100.0, 1, None), (20.0, 3, 380.0), (-1e6, 3, 6 * 3600.0)]
)
def test_after_one_that_failed_there_it_is_spread_when_it_has_been_so_for_twice_as_long(
    ended_ago: float, number: int, pause: float | None
) -> None:
    ended = whole(NOW - timedelta(seconds=ended_ago))
    job = a_service(2)
    told = AttemptStatus(number=number, pod="p", outcome=AttemptOutcome.FAILED, end_time=ended)
    job = replace(job, status=replace(job.status, last_attempt=told))
    first, second = a_pod(job, 1, created_ago=OLD), a_pod(job, 2, created_ago=OLD)

    assert first.created is not None
    due = (
        ended + timedelta(seconds=pause) if pause is not None else first.created + timedelta(seconds=SETTINGS.spread_after_seconds)
    )
    assert sorted_out(job, first, second).spreads == due


def test_one_that_failed_where_it_was_to_spread_the_service_holds_nothing_back_and_is_counted_nowhere() -> None:
    """Nobody waits for it: each doubled the pause of the next worker that is missed."""
    job = a_service(2)
    told = replace(job, status=replace(job.status, last_attempt=AttemptStatus(number=3, pod="p", outcome=AttemptOutcome.FAILED)))
    pods = [a_pod(job, number, created_ago=OLD) for number in (1, 2)]
    apart = [pods[0], replace(pods[1], node="node-2")]

    found = [sorted_out(one, *those, a_failure(one, 3)) for one, those in ((job, pods), (told, pods), (job, apart), (told, apart))]

    assert [(state.fault is None, state.untold) for state in found] == [(False, 0), (True, 0), (False, 1), (False, 0)]


def test_a_service_of_one_and_one_that_nobody_may_spread_stay() -> None:
    one, two = a_service(1), a_service(2)
    never = msgspec.structs.replace(SETTINGS, spread_after_seconds=0.0)
    seen = observed(two, a_pod(two, 1, created_ago=OLD), a_pod(two, 2, created_ago=OLD))

    assert sorted_out(one, a_pod(one, 1, created_ago=OLD)).spreads is None
    assert replicas(seen, resolved_of(seen), never, NOW).spreads is None


def test_the_one_that_goes_is_one_whose_node_has_others() -> None:
    job = a_service(2)
    pods = [a_pod(job, 1), a_pod(job, 2), a_pod(job, 3, node="node-2")]

    assert numbers(sorted_out(job, *pods).superfluous) == [2]


def test_one_that_starts_where_no_other_is_stays_until_it_answers() -> None:
    job = a_service(2)
    pods = [a_pod(job, 1), a_pod(job, 2), a_pod(job, 3, node="node-2", phase=PodPhase.PENDING)]

    assert sorted_out(job, *pods).superfluous == ()
    # On a node that others are on already it is one too many.
    assert numbers(sorted_out(job, *pods[:2], a_pod(job, 3, phase=PodPhase.PENDING)).superfluous) == [3]
    # One is enough.
    second = a_pod(job, 4, node="node-3", phase=PodPhase.PENDING)
    assert numbers(sorted_out(job, *pods, second).superfluous) == [4]


@pytest.mark.parametrize("unready", [{1}, {2}, {1, 2}])
def test_no_worker_goes_for_one_that_starts_elsewhere_while_it_is_not_ready_for_a_moment(unready: set[int]) -> None:
    """A kubelet that restarts says so of all its pods: one of them went minutes before its successor had loaded."""
    job = a_service(2)
    pods = [a_pod(job, number, ready=number not in unready) for number in (1, 2)]

    assert sorted_out(job, *pods, a_pod(job, 3, node="node-2", phase=PodPhase.PENDING)).superfluous == ()
    assert numbers(sorted_out(job, *pods, a_pod(job, 3, phase=PodPhase.PENDING)).superfluous) == [3]


def test_no_worker_goes_for_one_that_has_fallen_silent_at_once() -> None:
    """In its first minute it has no successor, and it counted as one that answers."""
    job = a_service(2)
    old = [a_pod(job, number, created_ago=OLD) for number in (1, 2)]
    new, stale = a_pod(job, 3, node="node-2"), a_pod(job, 1, revision="old", created_ago=OLD)
    uids = frozenset({new.uid})

    assert (silent(job, *old, new, uids=uids).superfluous, numbers(sorted_out(job, *old, new).superfluous)) == ((), [2])
    # In a roll-out neither makes it room, nor takes it the place of the last one that answers.
    assert not silent(job, stale, new, uids=uids).may_make_room and sorted_out(job, stale, new).may_make_room
    started = (stale, new, a_pod(job, 4))
    assert (silent(job, *started, uids=uids).superfluous, numbers(sorted_out(job, *started).superfluous)) == ((), [1])


def test_a_service_that_has_one_too_many_or_an_old_one_is_not_spread() -> None:
    job = a_service(2)
    pods = [a_pod(job, number, created_ago=OLD) for number in (1, 2)]
    extra = [a_pod(job, 3, created_ago=OLD), a_pod(job, 3, revision="old", node="node-2"), a_failure(job, 3)]

    assert sorted_out(job, *pods).spreads is not None
    assert [sorted_out(job, *pods, one).spreads for one in extra] == [None] * 3


def test_one_too_many_goes_where_the_others_are_on_several_nodes_or_there_is_one() -> None:
    one, two = a_service(1), a_service(2)
    starts: dict[str, Any] = {"node": "node-3", "phase": PodPhase.PENDING}

    assert numbers(sorted_out(one, a_pod(one, 1), a_pod(one, 2, **starts)).superfluous) == [2]
    assert numbers(sorted_out(two, a_pod(two, 1), a_pod(two, 2, node="node-2"), a_pod(two, 3, **starts)).superfluous) == [3]


def test_of_workers_on_one_node_the_one_stays_that_has_a_batch_in_its_slack() -> None:
    job = a_service(2)
    pods = (a_pod(job, 1), a_pod(job, 2), a_pod(job, 3, node="node-2"))
    state = sorted_out(job, *pods)

    assert numbers(replace(state, lending=frozenset({pods[1].key})).superfluous) == [1]
    unready = sorted_out(a_service(1), *(replace(pod, ready=False) for pod in pods[:2]))
    assert numbers(replace(unready, lending=frozenset({pods[1].key})).superfluous) == [1]
    # Its node has another that doesn't answer, which is none.
    blinks = (a_pod(job, 1, ready=False), *pods[1:], a_pod(job, 4, node="node-3"))
    assert numbers(sorted_out(job, *blinks).superfluous) == [4, 1]


@pytest.mark.parametrize(
    ("phase", "ready", "created_ago", "left"),
    [
        (PodPhase.PENDING, False, 599.0, 1.0),
        (PodPhase.PENDING, False, 600.0, None),
        (PodPhase.RUNNING, False, 600.0, 14400.0),
        (PodPhase.RUNNING, False, 15000.0, None),
    ],
)
def test_one_that_spreads_the_service_is_given_up_when_it_has_not_started_or_loaded_in_time(
    phase: PodPhase, created_ago: float, left: float | None, *, ready: bool
) -> None:
    job = a_service(2)
    new = a_pod(job, 3, node="node-2", phase=phase, ready=ready, created_ago=created_ago)
    now = whole(NOW)
    seen = observed(job, a_pod(job, 1), a_pod(job, 2), new)
    state = replicas(seen, resolved_of(seen), SETTINGS, now)

    assert state.gives_up == (now + timedelta(seconds=left) if left is not None else None)
    assert numbers(tuple(pod for pod, _ in state.given_up)) == ([3] if left is None else [])
    # Nobody misses it.
    assert (state.superfluous, state.untold, state.missing) == ((), 0, 0)


def test_a_worker_that_is_missed_and_does_not_start_is_given_up_and_counts_as_failed() -> None:
    job = a_service(2)
    stuck = a_pod(job, 2, phase=PodPhase.PENDING, problem=PodProblem("ErrImagePull", "no such image"), created_ago=600.0)
    state = sorted_out(job, a_pod(job, 1, created_ago=900.0), stuck)

    assert [(pod, ending.outcome) for pod, ending in state.given_up] == [(stuck, AttemptOutcome.FAILED)]
    assert "could not start within 600 s" in state.given_up[0][1].message and "no such image" in state.given_up[0][1].message
    assert (state.missing, state.untold, state.superfluous, state.fault) == (1, 1, (), None)


@pytest.mark.parametrize(
    "changes",
    [
        {"created_ago": 599.0, "phase": PodPhase.PENDING},
        {"created_ago": 1e6, "ready": False},
        {"created_ago": 1e6, "phase": PodPhase.PENDING, "deleting": True},
        {"created_ago": 1e6, "phase": PodPhase.PENDING, "revision": "old"},
    ],
    ids=["it may still start", "it loads", "it goes already", "it is old"],
)
def test_a_worker_is_not_given_up_where(changes: dict[str, Any]) -> None:
    job = a_service(1)

    assert sorted_out(job, a_pod(job, 1, **changes)).given_up == ()


def test_a_failed_worker_that_stays_is_counted_once() -> None:
    """Where ended pods may not be deleted, each look counted all but the newest again, and wrote the status."""
    told = AttemptStatus(number=2, pod="p", outcome=AttemptOutcome.FAILED, reason="WorkerFailed", end_time=whole(NOW))
    status = InferenceJobStatus(attempts=2, failed_attempts=2, last_attempt=told)
    job = a_job(serve=True, replicas=2, status=status)

    assert sorted_out(job, a_failure(job, 1, ended_ago=5), a_failure(job, 2, ended_ago=5)).untold == 0
    # An older one that fails later is news.
    earlier = replace(told, end_time=whole(NOW) - timedelta(seconds=60))
    job = replace(job, status=replace(status, last_attempt=earlier))
    assert sorted_out(job, a_failure(job, 1, ended_ago=5), a_failure(job, 2, ended_ago=60)).untold == 1


def test_one_that_fails_beside_younger_workers_is_counted() -> None:
    job = a_service(2)

    assert sorted_out(job, a_failure(job, 1), a_pod(job, 2), a_pod(job, 3)).untold == 1


@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=6))
def test_enough_workers_are_kept_and_they_are_on_as_many_nodes_as_can_be(wanted: int, workers: list[tuple[str, bool]]) -> None:
    job = a_service(wanted)
    pods = [
        a_pod(job, number, node=node, phase=PodPhase.RUNNING if runs else PodPhase.PENDING)
        for number, (node, runs) in enumerate(workers, 1)
    ]
    state = sorted_out(job, *pods)

    kept = [pod for pod in pods if pod not in state.superfluous]
    assert wanted <= len(kept) <= wanted + 1 or len(kept) == len(pods) < wanted
    answering = [pod for pod in pods if is_running(pod)]
    assert sum(is_running(pod) for pod in kept) == min(wanted, len(answering))
    if len(answering) >= wanted:
        nodes = {pod.node for pod in kept if is_running(pod)}
        assert len(nodes) == min(wanted, len({pod.node for pod in answering}))
