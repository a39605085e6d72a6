"""What the page of a job says: the cause is found on it, and what to do about it."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from inference_client.api import InferenceJob
from inference_client.client import Client
from inference_client.job_state import Goal
from kubectl_inference.commands.wait import finish, shown
from kubectl_inference.pages.advice import advice
from kubectl_inference.pages.parts import Table, Tone
from kubectl_inference.pages.placement import explanation
from kubectl_inference.pages.status import brief, headline, status_page
from kubectl_inference.snapshot import ClaimView, EventView, PodView, Snapshot
from tests.unit.client.objects import NOW, a_job, a_model, a_service, at, condition, ended_badly, succeeded, waiting

DIGEST = "sha256:" + "0" * 64


def seen(job: InferenceJob, **given: Any) -> Snapshot:
    return Snapshot(job, NOW, **given)


TYPO = seen(
    a_job(*waiting("Accepted", "ModelUnknown", "there is no InferenceModel digts in namespace demo"), spec={"model": "digts"}),
    models=("digits", "magika"),
)
CLAIM = seen(
    a_job(*waiting("Placed", "VolumeUnavailable", 'persistentvolumeclaim "dta" not found')),
    model=a_model(),
    pods=(PodView("job-1", "Pending", problem='Unschedulable: persistentvolumeclaim "dta" not found'),),
    claims=(ClaimView("data", "Bound"), ClaimView("spare", "Pending")),
)
MISMATCH = seen(
    a_job(
        *ended_badly("ModelDigestMismatch", "/data/digits/model.onnx has sha256:11, and sha256:00 is pinned"),
        model={"name": "digits", "version": "1", "digest": "sha256:" + "1" * 64},
        attempts=1,
        failedAttempts=1,
        lastAttempt={
            "number": 1,
            "pod": "job-1",
            "outcome": "Failed",
            "reason": "ModelDigestMismatch",
            "message": "…",
            "endTime": at(-10),
        },
    ),
    model=a_model(),
    pods=(PodView("job-1", "Failed", attempt=1),),
    events=(EventView("inferencejob/job", "Warning", "ModelDigestMismatch", "the file has another digest", NOW),),
)
NO_FILE = replace(MISMATCH, job=a_job(*ended_badly("ModelNotFound", "pvc://data/digits/model.onnx does not exist")))
NO_INPUT = replace(MISMATCH, job=a_job(*ended_badly("InputNotFound", "the input 'in.npz' does not exist")))
NO_NODE = seen(
    a_job(
        *waiting("Placed", "NoNodeFits", "0/2 nodes fit: 2 Insufficient cpu (4711 requested)"),
        spec={"resources": {"requests": {"cpu": "4711"}}},
    ),
    model=a_model(),
)
LATE = seen(
    a_job(
        *ended_badly("DeadlineExceeded", "the deadline 2026-12-01T11:58:00Z has passed"),
        spec={"deadline": at(-120), "deadlinePolicy": "Firm"},
        deadline={"time": at(-120), "outlook": "Missed"},
    ),
    model=a_model(),
)
SERVING = seen(
    a_service(
        condition("Accepted", "True", "Accepted"),
        condition("Placed", "True", "Placed"),
        condition("Ready", "True", "Serving"),
        spec={"serve": {"minReplicas": 2, "latencyTargetMilliseconds": 20}, "deadline": at(3600)},
        phase="Serving",
        reason="Serving",
        deadline={"time": at(3600), "outlook": "Met", "slackSeconds": 3800},
        readyTime=at(-200),
        readyReplicas=2,
        desiredReplicas=2,
        latency={"p50": 4.1, "p95": 31.25, "p99": 40, "count": 600, "windowSeconds": 60, "observedTime": at(-2)},
        placement={
            "accelerator": "cpu",
            "node": "cpu-1",
            "pod": "job-2",
            "decisionTime": at(-250),
            "cost": {"total": 2.655, "latencyWeight": 0.02, "latencySeconds": 33, "energyWeight": 0.001, "energyJoules": 495}
            | {"switchWeight": 0.5, "switchSeconds": 3, "estimated": True},
            "alternatives": [
                {"accelerator": "cpu", "node": "gpu-1", "reason": "node(s) had untolerated taint {nvidia.com/gpu: present}"}
            ],
        },
    ),
    model=a_model(),
    pods=(PodView("job-1", "Running", ready=True, node="cpu-1", attempt=1), PodView("job-2", "Running", ready=True, attempt=2)),
)


@pytest.mark.parametrize(
    ("snapshot", "first", "help_"),
    [
        (TYPO, "ModelUnknown: there is no InferenceModel digts", "Did you mean digits?"),
        (CLAIM, 'VolumeUnavailable: persistentvolumeclaim "dta" not found', "PersistentVolumeClaims: data, spare (Pending)"),
        (
            MISMATCH,
            "ModelDigestMismatch: /data/digits/model.onnx has sha256:11",
            "kubectl inference push FILE data/digits/model.onnx -n demo --force",
        ),
        (NO_FILE, "ModelNotFound: pvc://data/digits/model.onnx", "kubectl inference push FILE data/digits/model.onnx -n demo"),
        (NO_INPUT, "InputNotFound: the input", "kubectl inference push FILE data/in.npz -n demo"),
        (NO_NODE, "NoNodeFits: 0/2 nodes fit: 2 Insufficient cpu", "kubectl inference explain job -n demo"),
        (LATE, "DeadlineExceeded: the deadline", '{"spec": {"deadlinePolicy": "Soft"}}'),
    ],
    ids=[
        "typo in the model",
        "missing claim",
        "digest mismatch",
        "missing file",
        "missing input",
        "no node fits",
        "deadline missed",
    ],
)
def test_the_page_begins_with_the_cause_and_what_to_do(snapshot: Snapshot, first: str, help_: str) -> None:
    page = status_page(snapshot)

    why, to_do = page.sections[:2]
    assert (why.title, to_do.title) == ("Cause", "What to do")
    assert next(why.texts()).startswith(first)
    assert help_ in "\n".join(to_do.texts())
    assert first.split(":", maxsplit=1)[0] in page.headline.text


def test_a_file_that_is_on_no_claim_is_not_pushed() -> None:
    fetched = replace(MISMATCH, model=a_model(versions=[{"name": "1", "uri": "https://models.example.com/model.onnx"}]))

    assert "push" not in "\n".join(advice(fetched))


def test_a_cure_is_told_once() -> None:
    cures = [one for one in advice(TYPO) if "Create or correct the InferenceModel" in one]

    assert len(cures) == 1


def test_a_wait_tells_what_is_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    with shown("job") as tell:
        tell(TYPO.job)
        tell(TYPO.job)

    assert capsys.readouterr().err == "note: job: ModelUnknown: there is no InferenceModel digts in namespace demo\n"


def test_whoever_waits_for_a_suspension_hears_of_no_endpoint(capsys: pytest.CaptureFixture[str]) -> None:
    client = Mock(spec=Client)
    client.jobs = Mock()
    client.jobs.wait.return_value = a_service(condition("Suspended", "True", "Suspended"), endpoint="http://10.0.0.1")

    for goal, told in ((Goal.SUSPENDED, ""), (Goal.READY, "http://10.0.0.1\n")):
        assert finish(client, "job", "demo", 1.0, goal) == 0
        assert capsys.readouterr().out == told


def test_a_failed_batch_is_red_and_may_be_tried_again() -> None:
    assert headline(MISMATCH).tone is Tone.BAD and "batch demo/job on digits@1" in headline(MISMATCH).text
    assert "kubectl inference retry job -n demo" in "\n".join(advice(MISMATCH))
    assert headline(TYPO).tone is Tone.WARNING and "retry" not in "\n".join(advice(TYPO))


def test_a_log_is_read_where_a_worker_was() -> None:
    read = "kubectl inference logs job -n demo"

    assert read in "\n".join(advice(MISMATCH)) and read not in "\n".join(advice(replace(MISMATCH, pods=())))
    assert read not in "\n".join(advice(replace(NO_NODE, pods=MISMATCH.pods)))
    # Its pod has never started.
    assert read not in "\n".join(advice(CLAIM))


def test_a_final_reason_says_that_nothing_is_tried_again() -> None:
    assert "tried again: no, not without a change" in status_page(MISMATCH).text()
    assert "tried again" not in status_page(NO_NODE).text()


def test_the_digests_stand_below_each_other() -> None:
    text = status_page(MISMATCH).text()

    assert f"digest wanted: {DIGEST}\ndigest loaded: sha256:1" in text
    assert "file: pvc://data/digits/model.onnx" in text


def test_a_job_that_is_where_it_should_be_needs_nothing() -> None:
    page = status_page(SERVING)

    assert page.headline.text == "service demo/job on digits: Serving" and page.headline.tone is Tone.GOOD
    assert [one.title for one in page.sections][:2] == ["Deadline", "Service"]
    assert advice(SERVING) == ()


def test_a_service_tells_its_workers_latency_and_load() -> None:
    text = status_page(SERVING).text()

    assert "workers: 2 of 2 ready" in text
    assert "p50 4.1 ms, p95 31.2 ms, p99 40 ms; the target for p95 is 20 ms (600 measured, 2 s ago)" in text
    assert "load: 10 requests a second" in text


def test_the_place_is_explained_with_what_was_not_taken() -> None:
    text = "\n".join(line for section in explanation(SERVING) for line in section.texts())

    assert "2.65 = 0.02 x 33 s until done + 0.001 x 495 J + 0.5 x 3 s to load (assumed" in text
    assert "cpu gpu-1 <none> node(s) had untolerated taint" in text


def test_a_job_without_a_place_is_explained_by_what_it_asks_for() -> None:
    text = "\n".join(line for section in explanation(NO_NODE) for line in section.texts())

    assert "requests: cpu=4711" in text and "No place: NoNodeFits" in text


def test_what_else_asks_for_something_is_told_behind_the_cause() -> None:
    limited = seen(
        a_service(
            condition("Accepted", "True", "ReplicasLimited"),
            condition("Ready", "True", "Serving"),
            condition("Autoscaled", "False", "LatencyTargetBelowFloor"),
        )
    )

    first, second = advice(limited)
    assert first.startswith("ReplicasLimited: Change serve.minReplicas") and second.startswith("LatencyTargetBelowFloor: Raise")


def test_words_that_stand_twice_are_told_once() -> None:
    (table, _) = next(one for one in status_page(NO_NODE).sections if one.title == "Conditions").body
    assert isinstance(table, Table)

    assert [row[-1].text for row in table.rows][1:] == [
        "0/2 nodes fit: 2 Insufficient cpu (4711 requested)",
        "as above",
        "as above",
    ]


def test_a_job_that_nobody_has_seen_leads_to_the_operator() -> None:
    snapshot = seen(a_job(observedGeneration=0))

    assert "not seen by the operator yet" in headline(snapshot).text
    assert "watchNamespaces" in advice(snapshot)[0]


def test_a_suspended_job_is_told_how_to_go_on() -> None:
    assert advice(seen(a_job(condition("Suspended", "True", "Suspended")))) == (
        "Let it go on: kubectl inference resume job -n demo",
    )


def test_a_batch_that_runs_asks_for_nothing() -> None:
    running = seen(
        a_job(
            condition("Placed", "True", "Placed"),
            condition("Ready", "False", "Running", "40 of 100 items"),
            condition("Reconciling", "True", "Running"),
            progress={"total": 100, "completed": 40},
            deadline={"time": at(60), "outlook": "OnTime", "slackSeconds": 30, "estimatedCompletionTime": at(30)},
            spec={"deadline": at(60)},
        )
    )
    text = status_page(running).text()

    assert advice(running) == ()
    assert "items: 40 of 100 (40%)" in text
    assert "on time: in 1 min, and the job is expected to be done 30 s before the deadline" in text
    assert brief(running) == "Running, slack 30 s"


def test_what_may_not_be_read_is_not_taken_for_absent() -> None:
    blind = Snapshot(TYPO.job, NOW, unread=("models",))

    assert "has no InferenceModel" not in "\n".join(advice(blind))


def test_a_word_of_a_newer_operator_is_shown_as_it_is() -> None:
    newer = seen(a_job(*waiting("Placed", "Bewitched", "a spell")))

    assert "Bewitched: a spell" in status_page(newer).text()


def test_the_timeline_is_in_order_and_ends_with_what_is_to_come() -> None:
    (table,) = next(one for one in status_page(SERVING).sections if one.title == "Timeline").body
    assert isinstance(table, Table)

    assert [row[2].text for row in table.rows] == ["created", "first ready", "deadline (Soft)"]
    assert [row[1].text for row in table.rows] == ["5 min ago", "3 min 20 s ago", "in 1 h"]
    assert next(iter(status_page(seen(a_job(*succeeded()))).sections)).title == "Deadline"
