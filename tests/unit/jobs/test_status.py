"""Status parts that batch and serving jobs share: what they say of the deadline, the model and the latency."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.conditions import Reason
from inference_operator.api.job import Backend
from inference_operator.api.job_status import (
    DeadlineStatus,
    DeviceRuns,
    ModelStatus,
    Outlook,
    QueueStatus,
    SignatureStatus,
    SigningMethod,
)
from inference_operator.jobs.status import (
    deadline_look,
    deadline_status,
    latency_status,
    missed_for_good,
    model_status,
    placement_status,
    queue_status,
    round_milliseconds,
    window_status,
)
from inference_operator.scheduling.types import PendingReason
from inference_operator.state.runner import own_attempt
from inference_operator.workers.backend import chosen
from inference_protocol.messages import ModelSource, Quantization, Signer
from inference_protocol.sketch import RELATIVE_ACCURACY, LatencySketch
from tests.builders import DIGEST, NOW, OTHER_DIGEST, a_fact, a_job, a_load, a_pod, a_reading, a_report, observed, whole
from tests.unit.scheduling.support import in_seconds

# The deadline.


def stands(deadline_in: float | None, *, done_in: float | None = None, completed_in: float | None = None,
           before: DeadlineStatus | None = None, now: float = 0.0) -> DeadlineStatus | None:  # fmt: skip
    def at(seconds: float | None) -> object:
        return in_seconds(seconds) if seconds is not None else None

    return deadline_status(
        at(deadline_in),  # type: ignore[arg-type]
        estimated=at(done_in),  # type: ignore[arg-type]
        completed=at(completed_in),  # type: ignore[arg-type]
        before=before,
        now=in_seconds(now),
    )


@pytest.mark.parametrize(
    ("deadline_in", "done_in", "completed_in", "outlook"),
    [
        (60, None, None, Outlook.UNKNOWN),
        (60, 30, None, Outlook.ON_TIME),
        (60, 54, None, Outlook.ON_TIME),
        (66, 60, None, Outlook.ON_TIME),
        (60, 55, None, Outlook.AT_RISK),
        (60, 90, None, Outlook.AT_RISK),
        (-1, None, None, Outlook.MISSED),
        (-1, 30, None, Outlook.MISSED),
        (60, None, 60, Outlook.MET),
        (60, None, 61, Outlook.MISSED),
    ],
)
def test_the_outlook(deadline_in: float, done_in: float | None, completed_in: float | None, outlook: Outlook) -> None:
    status = stands(deadline_in, done_in=done_in, completed_in=completed_in)

    assert status is not None and status.outlook is outlook


def test_what_may_have_ended_in_time_is_not_missed_before_the_news_can_be_here() -> None:
    def outlook(now: float) -> Outlook | None:
        found = deadline_status(in_seconds(0), estimated=None, completed=None, before=None, now=in_seconds(now), under_way=True)
        return found.outlook if found is not None else None

    assert (outlook(1), outlook(4), outlook(6)) == (Outlook.AT_RISK, Outlook.AT_RISK, Outlook.MISSED)


@pytest.mark.parametrize(
    ("was", "of", "is_batch", "found", "outlook"),
    [
        (Outlook.MISSED, 0, True, Outlook.AT_RISK, Outlook.MISSED),
        (Outlook.MISSED, 0, False, Outlook.UNKNOWN, Outlook.MISSED),
        (Outlook.MISSED, 0, True, Outlook.MET, Outlook.MET),
        (Outlook.MISSED, 0, False, Outlook.MET, Outlook.MISSED),
        (Outlook.MISSED, -5, True, Outlook.ON_TIME, Outlook.ON_TIME),
        (Outlook.AT_RISK, 0, True, Outlook.ON_TIME, Outlook.ON_TIME),
    ],
    ids=["grace", "lost sight of", "told late", "rounded down", "another deadline", "not missed"],
)
def test_what_was_missed_stays_missed_unless_a_batch_ended_in_time(
    was: Outlook, of: float, found: Outlook, outlook: Outlook, *, is_batch: bool
) -> None:
    before, due = DeadlineStatus(time=in_seconds(of), outlook=was), DeadlineStatus(time=in_seconds(0), outlook=found)
    kept = missed_for_good(due, before, is_batch=is_batch)

    assert kept is not None and kept.outlook is outlook


def test_the_outlook_is_judged_by_the_estimate_that_is_shown() -> None:
    """An estimate that moves little keeps its old value: slack and outlook must tell of the same one."""
    first = stands(100, done_in=104)
    near = stands(100, done_in=90, before=first, now=0)

    assert near is not None and near.slack_seconds is not None
    assert (near.slack_seconds >= 0) == (near.outlook is Outlook.ON_TIME)


@pytest.mark.parametrize("now", [0.0, 0.5, 4.9, 5.0, 20.0])
def test_a_deadline_alone_is_looked_at_until_it_is_missed(now: float) -> None:
    looks, at = [], in_seconds(now)
    while (look := deadline_look(in_seconds(0), at)) is not None:
        looks.append(look)
        at = look

    assert len(looks) <= 2 and (not looks or looks[-1] > in_seconds(5))


def test_without_a_deadline_there_is_nothing_to_say() -> None:
    assert stands(None, done_in=30) is None


def test_slack_is_the_deadline_less_the_end() -> None:
    early, late = stands(60, completed_in=45), stands(60, completed_in=75)

    assert early is not None and early.slack_seconds == 15
    assert late is not None and late.slack_seconds == -15


def test_an_estimate_that_moved_little_keeps_its_old_value() -> None:
    first = stands(600, done_in=300)
    near, far = stands(600, done_in=320, before=first, now=10), stands(600, done_in=400, before=first, now=10)

    assert first is not None and near is not None and far is not None
    assert near.estimated_completion_time == first.estimated_completion_time
    assert far.estimated_completion_time == whole(in_seconds(400))


def test_an_estimate_for_another_deadline_is_made_anew() -> None:
    status = stands(900, done_in=310, before=stands(600, done_in=300))

    assert status is not None and status.estimated_completion_time == whole(in_seconds(310))


whole_seconds = st.integers(-1000, 1000).map(float)


@given(whole_seconds, whole_seconds)
def test_saying_it_again_says_the_same(deadline_in: float, done_in: float) -> None:
    # Whole seconds from a whole instant: fractions are test_fractions_of_seconds_are_said_once.
    offset = -NOW.microsecond / 1e6
    first = stands(deadline_in + offset, done_in=done_in + offset)

    assert stands(deadline_in + offset, done_in=done_in + offset, before=first) == first


def test_fractions_of_seconds_are_said_once() -> None:
    first = stands(60.0, done_in=30.1)

    assert stands(60.0, done_in=30.1, before=first) == first


# The model.

CHOICE = chosen(Backend.AUTO, "onnx")
BY_FORMAT: dict[str, Any] = {"backend": Backend.ONNX, "backend_reason": "auto: the model's format is onnx"}
ASKED = ModelSource(name="m", version="1", uri="u", digest=DIGEST)


def test_a_model_is_verified_when_the_digest_asked_for_was_found() -> None:
    assert model_status(ASKED, CHOICE, a_fact(), None) == ModelStatus(
        name="m", version="1", digest=DIGEST, verified=True, **BY_FORMAT
    )
    assert not model_status(ASKED, CHOICE, a_fact(digest=OTHER_DIGEST), None).verified
    assert not model_status(ModelSource(name="m", version="1", uri="u"), CHOICE, a_fact(), None).verified
    assert not model_status(ASKED, CHOICE, None, None).verified


def test_why_requests_do_not_share_a_run_is_told_and_kept() -> None:
    status = model_status(ASKED, CHOICE, msgspec.structs.replace(a_fact(), not_batched_because="it mixes its rows"), None)

    assert status.not_batched_because == "it mixes its rows"
    assert model_status(ASKED, CHOICE, None, status).not_batched_because == "it mixes its rows"
    assert model_status(ASKED, CHOICE, a_fact(), status).not_batched_because is None


def test_why_a_services_cache_is_not_used_is_told_and_kept() -> None:
    status = model_status(ASKED, CHOICE, msgspec.structs.replace(a_fact(), not_cached_because="it draws lots"), None)

    assert status.not_cached_because == "it draws lots"
    assert model_status(ASKED, CHOICE, None, status).not_cached_because == "it draws lots"
    assert model_status(ASKED, CHOICE, a_fact(), status).not_cached_because is None


def test_who_signed_the_model_is_told_with_the_time_of_the_first_worker_that_verified_it() -> None:
    """Each worker verifies anew: the time of another says nothing new, and would be written for nothing."""
    signer = Signer("release", "Key", int(NOW.timestamp()))
    fact, later = (
        msgspec.structs.replace(a_fact(), signer=each)
        for each in (signer, msgspec.structs.replace(signer, verified=signer.verified + 60))
    )
    status = model_status(ASKED, CHOICE, fact, None)

    assert status.signature == SignatureStatus(signer="release", method=SigningMethod.KEY, verified_time=NOW.replace(microsecond=0))
    assert model_status(ASKED, CHOICE, None, status) == model_status(ASKED, CHOICE, later, status) == status
    other = model_status(ASKED, CHOICE, msgspec.structs.replace(later, digest=OTHER_DIGEST), status).signature
    assert other is not None and other.verified_time > NOW
    assert model_status(ASKED, CHOICE, a_fact(), status).signature is None


def test_how_the_device_runs_the_model_is_told_and_kept() -> None:
    fact = msgspec.structs.replace(a_fact(), device_runs="SessionPerSize", not_captured_because="it has control flow")
    status = model_status(ASKED, CHOICE, fact, None)

    for told in (status, model_status(ASKED, CHOICE, None, status)):
        assert (told.device_runs, told.not_captured_because) == (DeviceRuns.SESSION_PER_SIZE, "it has control flow")
    after = model_status(ASKED, CHOICE, a_fact(), status)
    assert (after.device_runs, after.not_captured_because) == (None, None)


def test_the_variant_that_ran_is_told_beside_the_file_that_was_verified() -> None:
    asked = msgspec.structs.replace(ASKED, quantization=Quantization(method="dynamic", evaluation_uri="pvc://rows/e.npy"))
    fact = msgspec.structs.replace(a_fact(), variant=OTHER_DIGEST)

    status = model_status(asked, CHOICE, fact, None)

    assert (status.digest, status.verified, status.variant_digest) == (DIGEST, True, OTHER_DIGEST)
    assert model_status(asked, CHOICE, None, status) == status
    assert model_status(ASKED, CHOICE, None, status).variant_digest is None


def test_what_was_found_is_remembered_for_the_same_version_only() -> None:
    before = model_status(ASKED, CHOICE, a_fact(), None)
    other = ModelSource(name="m", version="2", uri="u", digest=OTHER_DIGEST)

    assert model_status(ASKED, CHOICE, None, before) == before
    assert model_status(other, CHOICE, None, before) == ModelStatus(name="m", version="2", digest=None, verified=False, **BY_FORMAT)


def test_the_last_words_count_more_than_the_last_reading() -> None:
    pod = a_pod(a_job(), report=a_report(model=a_fact(provider="A")))
    reading = a_reading(model=a_fact(provider="B"))

    seen = observed(a_job(), pod, readings={pod.uid: reading})
    said = seen.facts_of(own_attempt(pod))
    asked = seen.facts_of(own_attempt(replace(pod, report=None)))

    assert said is not None and said.provider == "A"
    assert asked is not None and asked.provider == "B"
    assert seen.facts_of(None) is None


def test_the_provider_of_one_pod_is_not_said_of_the_next() -> None:
    first, second = own_attempt(a_pod(a_job(), 1)), own_attempt(a_pod(a_job(), 2))
    before = placement_status(first, a_fact(provider="CPUExecutionProvider"), None)
    same, next_ = placement_status(first, None, before), placement_status(second, None, before)

    assert same is not None and same.execution_provider == "CPUExecutionProvider"
    assert next_ is not None and (next_.pod, next_.execution_provider) == (second.pod.key.name, None)
    assert placement_status(None, None, before) == before


# Latency.


@given(st.lists(st.floats(1e-4, 10.0), min_size=1, max_size=30), st.integers(1, 3))
def test_latency_is_that_of_all_workers_in_milliseconds(seconds: list[float], workers: int) -> None:
    job = a_job(serve=True, replicas=workers)
    pods = tuple(a_pod(job, n) for n in range(1, workers + 1))
    sketches = [LatencySketch() for _ in pods]
    for n, value in enumerate(seconds):
        sketches[n % workers].record(value)
    readings = {pod.uid: a_reading(sketch=sketch.counts) for pod, sketch in zip(pods, sketches, strict=True)}

    status = latency_status(observed(job, *pods, readings=readings), pods, None)

    middle = sorted(seconds)[int(0.5 * (len(seconds) - 1))] * 1e3
    assert status is not None and status.count == len(seconds)
    # The sketch's error, and three digits.
    assert abs(status.p50 - middle) <= middle * (RELATIVE_ACCURACY + 0.005)
    assert status.p50 <= status.p95 <= status.p99
    if workers == 1:
        half = sketches[0].quantile(0.5)
        assert half is not None and status.p50 == round_milliseconds(half * 1000)


def test_without_an_observation_the_old_latency_stands() -> None:
    job = a_job(serve=True)
    pod = a_pod(job)

    assert latency_status(observed(job, pod, readings={pod.uid: a_reading()}), (pod,), None) is None


@pytest.mark.parametrize(("value", "rounded"), [(12.345, 12.3), (0.0012345, 0.00123), (98765.4, 98800.0), (0.0, 0.0)])
def test_three_digits_are_enough(value: float, rounded: float) -> None:
    assert round_milliseconds(value) == rounded


# The queue and the window.


def test_a_start_that_moved_little_keeps_its_old_value() -> None:
    def queued(start: float, before: QueueStatus | None = None) -> QueueStatus | None:
        pending = PendingReason(Reason.NO_FREE_CAPACITY, "full", position=3, now=NOW, starts=start)
        return queue_status(pending, before, NOW)

    first = queued(10_000)

    assert first is not None and first.expected_start_time == whole(in_seconds(10_000))
    assert queued(10_050, first) == first
    assert queued(12_000, first) == first
    assert queued(30_000, first) != first


def test_a_windows_quantiles_are_told_in_milliseconds() -> None:
    status = window_status(a_load(0.4), NOW)

    assert status is not None
    assert (status.p50, status.p95, status.p99, status.count) == (200.0, 400.0, 480.0, 100)
