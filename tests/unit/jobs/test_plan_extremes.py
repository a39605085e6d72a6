"""Numbers and times at their limits: a plan comes out, or a refusal in words; never an exception.

An exception in a plan is retried for ever, and the job's status never says why nothing happens.
"""

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from inference_operator.api.job import Serve
from inference_operator.api.job_status import InferenceJobStatus, ProgressStatus
from inference_operator.state.objects import PodPhase, Reading
from inference_operator.workers.actions import WriteStatus
from inference_protocol.messages import Latency, Progress, Telemetry, TerminationReport, decode_report, encode
from inference_protocol.reasons import WorkerReason
from tests.builders import NOW, a_fact, a_job, a_model, a_pod, observed
from tests.unit.jobs.situation import LOOKED, full, on
from tests.unit.scheduling.support import decide

# Times.

FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
FIRST_IN_THE_EAST = FIRST.replace(tzinfo=timezone(timedelta(hours=14)))
LAST_IN_THE_WEST = LAST.replace(tzinfo=timezone(timedelta(hours=-12)))
TOO_FAR = "batch.py _passing, serve.py _future: a second after 9999-12-31T23:59:59Z, some people's 'never', is an OverflowError"


@pytest.mark.parametrize("policy", ["Soft", "Firm"])
@pytest.mark.parametrize("kind", ["batch", "serve"])
@pytest.mark.parametrize(
    "deadline",
    [
        pytest.param(FIRST, id="long ago"),
        pytest.param(FIRST_IN_THE_EAST, id="long ago in the east"),
        pytest.param(LAST, id="at the end of time"),
        pytest.param(LAST_IN_THE_WEST, id="at the end of time in the west"),
    ],
)
def test_a_deadline_at_any_time_is_planned_with(deadline: datetime, kind: str, policy: str) -> None:
    job = a_job(serve=kind == "serve", deadline=deadline, deadline_policy=policy, status=LOOKED)

    decide(observed(job), on("n", seconds=30.0))
    decide(observed(job), full())
    decide(observed(job, a_pod(job, seconds=30.0)))


@pytest.mark.parametrize(
    "until",
    [
        FIRST,
        pytest.param(FIRST_IN_THE_EAST),
        LAST,
        LAST_IN_THE_WEST,
    ],
)
def test_an_end_of_serving_at_any_time_is_planned_with(until: datetime) -> None:
    job = a_job(serve=Serve(until=until), status=LOOKED)

    decide(observed(job, a_pod(job)))


# Last words and telemetry that the protocol's types let through.

UNCHECKED = "messages.py: records are not bounded (counts >= 0, digest's form), so building the status raises pydantic's error"


def whole_report(**changes: object) -> TerminationReport:
    report = TerminationReport(
        outcome="Succeeded",
        message="done",
        model=a_fact(),
        progress=Progress(total=1, completed=1),
        latency=Latency(p50=1.0, p95=1.0, p99=1.0, count=1),
        output="{}",
    )
    return msgspec.structs.replace(report, **changes)


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(whole_report(), id="as it should be"),
        pytest.param(whole_report(progress=Progress(total=0, completed=0)), id="nothing to do"),
        pytest.param(whole_report(message=""), id="no words"),
        pytest.param(whole_report(model=None, progress=None, latency=None, output=None), id="only an outcome"),
    ],
)
def test_a_finished_worker_may_say_anything(report: TerminationReport) -> None:
    assert decode_report(encode(report).decode()) == report
    job = a_job(model="m", status=LOOKED)
    pod = a_pod(job, phase=PodPhase.SUCCEEDED, report=report, model=a_model())

    done = decide(observed(job, pod, model=a_model()))

    assert any(isinstance(action, WriteStatus) for action in done.actions)


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(whole_report(progress=Progress(total=-1, completed=0)), id="a negative count"),
        pytest.param(whole_report(latency=Latency(0.0, 0.0, 0.0, -1)), id="a negative latency count"),
        pytest.param(whole_report(model=a_fact(digest="md5:1")), id="another digest"),
        pytest.param(whole_report(model=a_fact(items_per_second=-1.0)), id="a negative rate"),
        pytest.param(whole_report(output="x" * 5000), id="too much output"),
    ],
)
def test_what_no_status_could_hold_is_no_report(report: TerminationReport) -> None:
    assert decode_report(encode(report).decode()) is None


def telemetry(**changes: object) -> Telemetry:
    return msgspec.structs.replace(Telemetry(ready=True, draining=False, model=a_fact()), **changes)


@pytest.mark.parametrize(
    "decision",
    [
        pytest.param(telemetry(), id="as it should be"),
        pytest.param(telemetry(progress=Progress(total=10, completed=10, resumed=10)), id="all was done before"),
        pytest.param(telemetry(progress=Progress(total=1, completed=5)), id="more done than there is"),
        pytest.param(
            telemetry(progress=Progress(total=0, completed=0)),
            id="nothing to do",
        ),
        pytest.param(
            telemetry(progress=Progress(total=2**60, completed=1)),
            id="work of ages",
        ),
        pytest.param(
            telemetry(sketch={10**6: 1}, progress=Progress(total=10, completed=9)),
            id="a latency of ages",
        ),
        pytest.param(telemetry(sketch={1: -1, 2: 1}), id="a negative count in the sketch"),
    ],
)
def test_a_running_worker_may_answer_anything(decision: Telemetry) -> None:
    before = ProgressStatus(total=10, completed=1)
    job = a_job(deadline_in=60, status=InferenceJobStatus(observed_generation=1, progress=before))
    pod = a_pod(job, created_ago=100)

    decide(observed(job, pod, readings={pod.uid: Reading(decision, NOW)}))


def test_an_unknown_word_of_a_newer_worker_is_a_plain_failure_with_its_message() -> None:
    told = decode_report('{"outcome":"Failed","message":"m","reason":"WordOfTheNextVersion"}')

    assert told is not None
    assert (told.reason, told.message) == (WorkerReason.INTERNAL, "m")
