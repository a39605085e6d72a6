"""What the pages for those on call say is what the code does: figures, log lines, metrics, outcomes."""

import math
import re
from itertools import accumulate

import pytest

from inference_operator.api.job_status import AttemptOutcome
from inference_operator.kube.leaderelection import LONGEST_SECONDS
from inference_operator.liveness.detector import LIMITS, Cause
from inference_operator.liveness.prober import _TURNS, STEP_SECONDS
from inference_operator.settings import Settings
from inference_operator.workers.attempts import backoff_seconds
from inference_operator.workers.probes import probes
from inference_worker.batch.running import _LOOKS, LOOK_SECONDS
from inference_worker.batching.in_flight import _STUCK_TIMES, FIRST_SECONDS, STUCK_SECONDS
from tests.builders import a_job
from tests.pages import ROOT

DOCS = ROOT / "docs"
OPERATOR = ROOT / "operator" / "inference_operator"
FAILURES = (DOCS / "tasks" / "failures.md").read_text()
DETECTION = (DOCS / "concepts" / "failure-detection.md").read_text()
STATUS = (DOCS / "tasks" / "status.md").read_text()
SETTINGS = Settings(worker_image="w")


def test_the_limits_of_a_suspicion_are_those_of_the_detector() -> None:
    assert f"silent for {LIMITS.silent_seconds:g} s" in DETECTION and f"suspected\nafter {LIMITS.node_seconds:g} s" in DETECTION
    assert f"every {1000 * STEP_SECONDS * _TURNS:g} ms" in DETECTION and LIMITS.refusals == LIMITS.answers == 2
    most = LIMITS.most_answers
    assert f"up to {most} answers in a row ({most * STEP_SECONDS * _TURNS:g} s)" in FAILURES and LIMITS.calm_seconds == 60


def test_each_cause_of_a_suspicion_is_on_both_pages() -> None:
    for cause in Cause:
        assert f"`{cause}`" in DETECTION and re.search(rf"suspected: {cause}`|`{cause}`", FAILURES)


def test_when_a_worker_hangs_is_what_the_worker_and_its_probes_say() -> None:
    assert f"longer than {STUCK_SECONDS:g} s and {_STUCK_TIMES} times what was measured" in FAILURES
    assert FIRST_SECONDS == 1800 and "has half an hour" in FAILURES
    assert _LOOKS * LOOK_SECONDS == 10 and "some ten seconds later" in FAILURES
    live, ready = probes(SETTINGS)["livenessProbe"], probes(SETTINGS)["readinessProbe"]
    assert live["periodSeconds"] * live["failureThreshold"] == 60 and "after a minute, by the kubelet" in FAILURES
    assert ready["failureThreshold"] == 1 and f"no, after {ready['timeoutSeconds']} s" in FAILURES


def test_how_long_a_full_volume_is_borne_follows_from_the_settings() -> None:
    spec = a_job().spec
    assert spec is not None and f"`maxAttempts` ({spec.max_attempts})" in FAILURES
    assert (
        f"double from {SETTINGS.backoff_seconds:g} s up to `backoffLimitSeconds` ({SETTINGS.backoff_limit_seconds:g} s)" in FAILURES
    )
    waits = list(accumulate(backoff_seconds(failures, SETTINGS) for failures in range(1, 20)))
    assert math.isclose(waits[-1] / 60, 30, rel_tol=0.1) and "20 attempts take half an hour" in FAILURES


def test_a_lease_that_stands_is_taken_after_what_the_page_says() -> None:
    assert f"stands for {LONGEST_SECONDS} s at the most" in FAILURES and f"within {LONGEST_SECONDS} s" in DETECTION


@pytest.mark.parametrize(
    ("words", "module"),
    [
        (" is suspected: ", "liveness/prober.py"),
        ("speaks again", "liveness/prober.py"),
        ("the Lease can't be written: ", "kube/leaderelection.py"),
        ("older in the list", "controllers/resync.py"),
        (" does not answer", "workers/pod_problems.py"),
        (" takes no more work", "workers/pod_problems.py"),
    ],
)
def test_words_that_the_page_has_one_look_for_are_said(words: str, module: str) -> None:
    assert words in FAILURES and words in (OPERATOR / module).read_text()


def test_the_words_of_a_worker_that_hangs_are_its_own() -> None:
    said = (ROOT / "worker-image" / "inference_worker" / "batching" / "in_flight.py").read_text()

    assert "rows has not ended for" in said and "rows has not ended for" in FAILURES


def test_each_outcome_of_an_attempt_is_explained() -> None:
    assert {outcome.value for outcome in AttemptOutcome} == set(re.findall(r"^\| `(\w+)` \| ", _outcomes(), re.MULTILINE))


def _outcomes() -> str:
    return STATUS.partition("### How attempts end")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", ["concepts/failure-detection.md", "tasks/failures.md", "tasks/monitor.md", "tasks/status.md"])
def test_a_metric_that_one_has_to_look_at_is_there(name: str) -> None:
    known = set(re.findall(r"^\| `(inference_\w+)` \|", (DOCS / "reference" / "metrics.md").read_text(), re.MULTILINE))
    # The label of all series of jobs.
    named = set(re.findall(r"`(inference_\w+)(?:\{[^`]*)?`", (DOCS / name).read_text())) - {"inference_job"}

    assert {metric for metric in named if not metric.endswith("_")} - known == set()
