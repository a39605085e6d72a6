"""A trigger's metadata: what it asks for, and what is said of metadata that ask for nothing."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.autoscaling.keda.questions import Question, parse
from inference_operator.autoscaling.metrics import MetricError, MetricFault
from inference_operator.state.objects import Key


def test_a_job_is_scaled_by_the_workers_that_it_wants_unless_another_metric_is_named() -> None:
    assert parse("demo", {"job": "magika"}) == Question(Key("demo", "magika"), "inference_desired_replicas", 1.0)
    other = {"job": "magika", "metric": "inference_latency_ms", "target": "300"}
    assert parse("demo", other) == Question(Key("demo", "magika"), "inference_latency_ms", 300.0)


def test_what_is_kedas_own_does_not_matter() -> None:
    assert parse("demo", {"job": "magika", "scalerAddress": "x:6000", "enableTLS": "false"}).job == Key("demo", "magika")


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({}, "job: NAME"),
        ({"job": ""}, "job: NAME"),
        ({"job": "magika", "metric": "cpu"}, "there is no metric 'cpu'; InferenceJobs have inference_latency_ms"),
        ({"job": "magika", "metric": "inference_latency_ms"}, "what inference_latency_ms is to be; it is ''"),
        ({"job": "magika", "target": "0"}, "above zero"),
        ({"job": "magika", "target": "-1"}, "above zero"),
        ({"job": "magika", "target": "inf"}, "above zero"),
        ({"job": "magika", "target": "nan"}, "above zero"),
        ({"job": "magika", "target": "many"}, "it is 'many'"),
    ],
)
def test_what_asks_for_nothing_is_told_what_to_write(metadata: dict[str, str], says: str) -> None:
    with pytest.raises(MetricError, match=says) as caught:
        parse("demo", metadata)

    assert caught.value.fault is MetricFault.INVALID


def test_without_a_namespace_no_job_is_meant() -> None:
    with pytest.raises(MetricError):
        parse("", {"job": "magika"})


KEYS = st.sampled_from(["job", "metric", "target", "namespace"]) | st.text()
VALUES = st.sampled_from(["magika", "other/magika", "inference_queue_depth", "5"]) | st.text()


@given(st.dictionaries(KEYS, VALUES))
def test_no_metadata_reach_into_another_namespace(metadata: dict[str, str]) -> None:
    with suppress(MetricError):
        found = parse("demo", metadata)
        assert found.job == Key("demo", metadata["job"])
        assert found.target > 0
