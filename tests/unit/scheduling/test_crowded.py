"""A job that those before it leave no time for: it says so at once, and what would have to change."""

from dataclasses import replace
from typing import Any

from inference_operator.api.conditions import Reason
from inference_operator.api.job_status import InferenceJobStatus, Outlook
from inference_operator.scheduling.requirements import pod_requirements
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Fleet, PendingReason
from inference_operator.settings import CostWeights
from tests.builders import NOW, a_job, a_node, a_pod, a_request, an_option, no_room, observed, somebodys_pod, whole
from tests.unit.jobs.situation import LOOKED
from tests.unit.scheduling.support import Scheduler, decide, in_seconds, settled, status_of

ONE_SLOT = a_node(cpu="1")
JOB = observed(a_job(deadline_in=50, status=LOOKED))


def pending(**full: Any) -> PendingReason:
    """What the second of two is told that can't both be in time."""
    requests = (a_request("first", deadline_in=35), a_request("second", deadline_in=50))
    found = schedule(Fleet((ONE_SLOT,), tuple(full.get("pods", ())), requests), CostWeights(), NOW)[requests[1].key].pending
    assert found is not None
    return found


def crowded(**changes: Any) -> Scheduler:
    told = PendingReason(Reason.NO_FREE_CAPACITY, "waits for room: cpu: full", position=2, start_by=in_seconds(20))
    return lambda request: no_room(request)._replace(pending=told._replace(**changes))


def words(status: InferenceJobStatus) -> str:
    return next(c.message for c in status.conditions if c.type == "Ready")


def test_it_is_told_by_when_it_needs_a_place_and_which_deadline_could_be_met() -> None:
    found = pending()

    assert (found.start, found.done) == (None, None)
    assert (found.start_by, found.possible) == (in_seconds(20), in_seconds(60))


def test_where_no_place_comes_free_no_deadline_is_promised() -> None:
    found = pending(pods=[somebodys_pod(node=ONE_SLOT.name, cpu="1")])

    assert (found.start_by, found.possible) == (in_seconds(20), None)


def test_it_is_at_risk_and_names_the_deadline_that_could_be_met() -> None:
    status = status_of(decide(JOB, crowded(possible=in_seconds(60))))

    assert status.deadline is not None
    assert (status.deadline.outlook, status.deadline.slack_seconds) == (Outlook.AT_RISK, -10)
    assert "A deadline of 2026-04-02T12:01:01Z or later, a higher priority" in words(status)


def test_it_is_at_risk_though_nobody_knows_when_a_place_will_be_free() -> None:
    status = status_of(decide(JOB, crowded()))

    assert status.deadline is not None
    assert (status.deadline.outlook, status.deadline.estimated_completion_time) == (Outlook.AT_RISK, None)
    assert "will be late unless a place is free by 2026-04-02T12:00:20Z. A later deadline" in words(status)


def test_what_would_have_to_change_is_said_when_others_come_before_it_and_no_longer_when_they_leave() -> None:
    planned = crowded(start_by=None, now=NOW, starts=10.0, takes=30.0)
    before = settled(JOB, planned)
    late = settled(before, crowded(possible=in_seconds(60)))
    after = settled(late, planned)

    assert "expected to start" in words(before.job.status)
    assert "will be late" in words(late.job.status)
    assert words(after.job.status) == words(before.job.status)


def test_counts_that_move_are_not_said_again() -> None:
    seen = settled(JOB, crowded(possible=in_seconds(60)))

    assert decide(seen, crowded(possible=in_seconds(61), message="waits for room: cpu: fuller")).actions == ()


SERVICE = observed(a_job(serve=True, deadline_in=50))


def test_a_service_that_is_crowded_out_is_at_risk_too() -> None:
    status = status_of(decide(SERVICE, crowded(possible=in_seconds(60))))

    assert status.deadline is not None and status.queue is not None
    assert (status.deadline.outlook, status.deadline.slack_seconds, status.queue.position) == (Outlook.AT_RISK, -10, 2)
    assert "A deadline of 2026-04-02T12:01:01Z or later, a higher priority" in words(status)


def test_a_service_that_waits_says_when_it_should_be_ready() -> None:
    status = status_of(decide(SERVICE, crowded(start_by=None, now=NOW, starts=10.0, takes=5.0)))

    assert status.deadline is not None and status.queue is not None
    assert (status.deadline.outlook, status.deadline.slack_seconds) == (Outlook.ON_TIME, 35)
    assert "expected to start at 2026-04-02T12:00:10Z, as number 2" in words(status)


def test_a_service_that_was_ready_once_has_met_its_deadline_though_another_worker_waits() -> None:
    job = a_job(serve=True, replicas=2, deadline_in=50, status=replace(LOOKED, ready_time=whole(NOW)))
    status = status_of(decide(observed(job, a_pod(job, 1)), crowded(possible=in_seconds(60))))

    assert status.deadline is not None and status.queue is not None
    assert (status.deadline.outlook, status.queue.position) == (Outlook.MET, 2)


def test_while_nothing_is_decided_yet_what_was_said_stands() -> None:
    job = a_job(serve=True, replicas=3, deadline_in=50, status=LOOKED)
    seen = settled(observed(job, a_pod(job, 1)), crowded(start_by=None, now=NOW, starts=10.0, takes=5.0))
    again = decide(seen)

    before, status = seen.job.status, status_of(again, seen)
    assert before.queue is not None
    assert (status.queue, status.deadline) == (before.queue, before.deadline)


def test_nodes_that_are_short_by_different_amounts_in_the_same_words_are_all_counted() -> None:
    nodes = tuple(a_node(f"node-{i}", cpu="4", memory="8Gi") for i in range(3))
    taken = tuple(somebodys_pod(f"taken-{i}", node=f"node-{i}", cpu="1", memory=f"{7 * 2**20 + 4 * i}Ki") for i in range(3))
    large = replace(an_option(), requirements=pod_requirements((("memory", 2 * 2**30),)))
    found = schedule(Fleet(nodes, taken, (a_request("n", large),)), CostWeights(), NOW)

    (decision,) = found.values()
    assert decision.pending is not None
    assert "0/3 nodes are available: 3 Insufficient memory (" in decision.pending.message
