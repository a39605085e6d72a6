"""Paths: of the group, of a version, of one object, of all, of the namespace itself, of cluster-scoped objects."""

import pytest

from inference_operator.autoscaling.metrics import ALL
from inference_operator.autoscaling.metricsapi.documents import StatusError
from inference_operator.autoscaling.metricsapi.queries import Discovery, MetricRequest, parse

HEAD = ("apis", "custom.metrics.k8s.io", "v1beta2")
JOBS = "inferencejobs.inference.myorg"


def test_discovery() -> None:
    assert parse(HEAD[:2], {}) == Discovery("/apis/custom.metrics.k8s.io")
    assert parse(HEAD, {}) == Discovery("/apis/custom.metrics.k8s.io/v1beta2", "v1beta2")


def test_one_object_and_all() -> None:
    one = parse((*HEAD, "namespaces", "n", JOBS, "j", "m"), {})
    everything = parse((*HEAD, "namespaces", "n", JOBS, "*", "m"), {"labelSelector": "a=b", "metricLabelSelector": "signal"})

    assert isinstance(one, MetricRequest)
    assert (one.query.namespace, one.resource, one.query.name, one.query.metric) == ("n", JOBS, "j", "m")
    assert isinstance(everything, MetricRequest) and everything.query.name == ALL
    assert everything.query.objects.matches({"a": "b"}) and not everything.query.objects.matches({})
    assert not everything.query.series.matches({})


def test_the_namespace_itself_and_cluster_scoped_objects() -> None:
    namespace, node = parse((*HEAD, "namespaces", "n", "metrics", "m"), {}), parse((*HEAD, "nodes", "x", "m"), {})

    assert isinstance(namespace, MetricRequest)
    assert (namespace.resource, namespace.query.name, namespace.query.namespace) == ("namespaces", "n", "n")
    assert isinstance(node, MetricRequest) and (node.resource, node.query.name, node.query.namespace) == ("nodes", "x", "")


@pytest.mark.parametrize(
    "parts",
    [(), ("",), ("apis",), ("apis", "other"), (*HEAD[:2], "v1"), (*HEAD, "namespaces"), ("openapi", "v2"), (*HEAD, *"abcdef")],
)
def test_other_paths_are_not_found(parts: tuple[str, ...]) -> None:
    with pytest.raises(StatusError) as caught:
        parse(parts, {})
    assert caught.value.document()["reason"] == "NotFound"


@pytest.mark.parametrize("key", ["labelSelector", "metricLabelSelector"])
def test_a_bad_selector_is_a_bad_request(key: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse((*HEAD, "namespaces", "n", JOBS, "j", "m"), {key: "a in"})
    assert caught.value.document() | {"message": ""} == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "",
        "reason": "BadRequest",
        "code": 400,
    }
