"""Jobs and models from the API: everything is read or called invalid in words, and a status comes back as it was written."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.conditions import Condition, ConditionType, Truth
from inference_operator.api.job_status import (
    Alternative,
    AttemptOutcome,
    AttemptStatus,
    CostTerms,
    DeadlineStatus,
    InferenceJobStatus,
    LatencyStatus,
    ModelStatus,
    Outlook,
    OutputStatus,
    Placement,
    ProgressStatus,
)
from inference_operator.api.model import InferenceModelStatus
from inference_operator.state.parse import model_status_document, parse_job, parse_model, placement_text, status_document
from tests.builders import DIGEST, NOW, a_profile
from tests.unit.state.raw import raw_job

SPEC_FIELDS = [
    *("model", "modelVersion", "accelerator", "deadline", "priority", "batchSize", "input", "output", "serve", "replicas"),
    *("suspend", "resources", "nodeSelector", "tolerations", "template", "maxAttempts", "autoscaling", "unknown"),
]
STATUS_FIELDS = [*("conditions", "deadline", "placement", "attempts", "lastAttempt", "progress", "observedGeneration", "phase")]

T = TypeVar("T")
EARLY, LATE = datetime(1970, 1, 1), datetime(9000, 1, 1)  # noqa: DTZ001

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
garbage_specs = json_values | st.dictionaries(st.sampled_from(SPEC_FIELDS), json_values, max_size=6)
garbage_statuses = json_values | st.dictionaries(st.sampled_from(STATUS_FIELDS), json_values, max_size=6)


@given(garbage_specs, garbage_statuses)
def test_no_job_raises_and_an_unreadable_one_says_why(spec: object, status: object) -> None:
    job = parse_job(raw_job(spec, status))

    assert (job.spec is None) == bool(job.invalid)
    assert isinstance(job.status, InferenceJobStatus)


@given(garbage_specs, garbage_statuses)
def test_no_model_raises_and_an_unreadable_one_says_why(spec: object, status: object) -> None:
    model = parse_model(raw_job(spec, status))

    assert (model.spec is None) == bool(model.invalid)


def test_the_missions_manifest_is_read() -> None:
    spec = {"model": "lane-detection-v2", "accelerator": "gpu", "deadline": "2026-04-02T12:00:00Z", "batchSize": 4}
    job = parse_job(raw_job(spec))

    assert job.invalid is None and job.spec is not None
    assert (job.spec.model, job.spec.accelerator, job.spec.batch_size) == ("lane-detection-v2", "gpu", 4)
    assert job.spec.deadline == datetime(2026, 4, 2, 12, tzinfo=UTC)
    assert (job.key.name, job.uid, job.generation, job.deleting) == ("job", "uid-of-job", 3, False)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("batchSize", 0),
        ("accelerator", "nvidia.com/gpu"),
        ("accelerator", "gpu\n"),
        ("deadline", "tomorrow"),
        ("deadline", "2026-04-02T12:00:00"),
        ("priority", 1001),
        ("modelDigest", "sha256:xyz"),
        ("modelDigest", DIGEST + "\n"),
        ("resources", {"requests": {"cpu": "lots"}}),
        ("model", ""),
    ],
)
def test_a_fault_names_its_field_as_users_wrote_it(field: str, value: object) -> None:
    job = parse_job(raw_job({"model": "m", field: value}))

    assert job.spec is None
    assert job.invalid is not None and job.invalid.startswith(field)


def test_many_faults_make_a_bounded_text() -> None:
    job = parse_job(raw_job({"model": "m", "tolerations": [{"operator": "x" * 100}] * 500}))

    assert job.invalid is not None and len(job.invalid) <= 2000


def test_a_deadline_in_another_zone_is_the_same_instant() -> None:
    job = parse_job(raw_job({"model": "m", "deadline": "2026-04-02T14:00:00+02:00"}))

    assert job.spec is not None and job.spec.deadline == datetime(2026, 4, 2, 12, tzinfo=UTC)


def test_a_job_that_is_going_away_is_deleting() -> None:
    assert parse_job(raw_job({"model": "m"}, deletionTimestamp="2026-04-02T12:00:00Z")).deleting


# Written statuses come back equal: what differs would be written again, for ever.

ZONES = [UTC, timezone(timedelta(hours=2))]
instants = st.datetimes(EARLY, LATE, timezones=st.sampled_from(ZONES))
counts = st.integers(0, 2**53)
numbers = st.floats(-1e12, 1e12, allow_nan=False)
texts = st.text(max_size=20)


def of(cls: type[T], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    return st.fixed_dictionaries(fields).map(lambda chosen: cls(**chosen))


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


costs = of(
    CostTerms, total=numbers, latency_seconds=numbers, energy_joules=numbers, switch_seconds=numbers, estimated=st.booleans()
)
placements = of(
    Placement,
    accelerator=texts,
    node=texts,
    pod=texts,
    execution_provider=maybe(texts),
    cost=costs,
    alternatives=st.lists(of(Alternative, accelerator=texts, node=maybe(texts), reason=texts, cost=maybe(costs)), max_size=4),
    decision_time=instants,
)
statuses = of(
    InferenceJobStatus,
    observed_generation=counts,
    phase=maybe(texts),
    reason=maybe(texts),
    conditions=st.lists(
        of(
            Condition,
            type=st.sampled_from([kind.value for kind in ConditionType]),
            status=st.sampled_from(Truth),
            reason=st.text(min_size=1, max_size=9),
            message=texts,
            last_transition_time=instants,
            observed_generation=counts,
        ),
        max_size=7,
    ),
    deadline=maybe(
        of(
            DeadlineStatus,
            time=instants,
            estimated_completion_time=maybe(instants),
            slack_seconds=maybe(st.integers(-(2**53), 2**53)),
            outlook=st.sampled_from(Outlook),
        )
    ),
    placement=maybe(placements),
    latency=maybe(of(LatencyStatus, p50=numbers, p95=numbers, p99=numbers, count=counts, observed_time=instants)),
    progress=maybe(of(ProgressStatus, total=counts, completed=counts, failed=counts)),
    model=maybe(of(ModelStatus, name=texts, version=maybe(texts), digest=st.just(DIGEST), verified=st.booleans())),
    attempts=counts,
    failed_attempts=counts,
    last_attempt=maybe(
        of(
            AttemptStatus,
            number=st.integers(1, 2**53),
            pod=texts,
            outcome=st.sampled_from(AttemptOutcome),
            reason=maybe(texts),
            message=maybe(texts),
            end_time=maybe(instants),
        )
    ),
    output=maybe(of(OutputStatus, uri=maybe(texts), data=maybe(texts))),
    start_time=maybe(instants),
    completion_time=maybe(instants),
    replicas=counts,
    ready_replicas=counts,
    selector=maybe(texts),
    endpoint=maybe(texts),
)


@given(statuses)
def test_a_written_status_is_read_back_equal(status: InferenceJobStatus) -> None:
    over_the_wire = json.loads(json.dumps(status_document(status)))

    assert parse_job(raw_job({"model": "m"}, over_the_wire)).status == status


@given(placements)
def test_a_placement_survives_as_annotation(placement: Placement) -> None:
    status = InferenceJobStatus(placement=placement)

    assert json.loads(placement_text(placement)) == json.loads(json.dumps(status_document(status)))["placement"]


def test_a_model_status_is_read_back_equal() -> None:
    status = InferenceModelStatus(observed_generation=2, profiles=[a_profile("cpu"), a_profile("gpu", batch_size=8)])
    over_the_wire = json.loads(json.dumps(model_status_document(status)))

    assert parse_model(raw_job({"versions": [{"name": "1", "uri": "pvc://c/m"}]}, over_the_wire)).status == status


def test_conditions_of_others_are_not_read() -> None:
    ours = {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    theirs = {**ours, "type": "Audited"}
    job = parse_job(raw_job(status={"conditions": [theirs, ours]}))

    assert job.unreadable is None
    assert [one.type for one in job.status.conditions] == ["Ready"]


def test_a_status_holds_nothing_that_is_not_set() -> None:
    document = status_document(InferenceJobStatus(deadline=DeadlineStatus(time=NOW, outlook=Outlook.UNKNOWN)))

    assert None not in document.values()
    assert set(document["deadline"]) == {"time", "outlook"}
