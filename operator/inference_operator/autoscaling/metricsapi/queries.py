"""What a request asks for, read from its path and query."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from inference_operator.autoscaling.metrics import Query
from inference_operator.autoscaling.metricsapi.documents import METRICS_GROUP, VERSIONS, StatusError
from inference_operator.autoscaling.selectors import SelectorError, parse_selector


@dataclass(frozen=True, slots=True)
class Discovery:
    """What there is: of the group, or of one version."""

    path: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class MetricRequest:
    """A query, the resource that it is about, and the version of the API in which its answer is to be."""

    version: str
    resource: str
    query: Query


def parse(parts: tuple[str, ...], query: Mapping[str, str]) -> Discovery | MetricRequest:
    """Read the parts of a path, each percent-decoded by itself (`%2A` is `*`).

    Raises StatusError: 404, or 400 for a bad selector.
    """
    match parts:
        case ("apis", group) if group == METRICS_GROUP:
            return Discovery("/" + "/".join(parts))
        case ("apis", group, version) if group == METRICS_GROUP and version in VERSIONS:
            return Discovery("/" + "/".join(parts), version)
        case ("apis", group, version, "namespaces", namespace, "metrics", metric) if _served(group, version):
            return _query(version, namespace, "namespaces", namespace, metric, query)
        case ("apis", group, version, "namespaces", namespace, resource, name, metric) if _served(group, version):
            return _query(version, namespace, resource, name, metric, query)
        case ("apis", group, version, resource, name, metric) if _served(group, version):
            return _query(version, "", resource, name, metric, query)
    raise StatusError(HTTPStatus.NOT_FOUND, "the server could not find the requested resource")


def _served(group: str, version: str) -> bool:
    return group == METRICS_GROUP and version in VERSIONS


def _query(version: str, namespace: str, resource: str, name: str, metric: str, query: Mapping[str, str]) -> MetricRequest:
    try:
        objects = parse_selector(query.get("labelSelector", ""))
        series = parse_selector(query.get("metricLabelSelector", ""))
    except SelectorError as error:
        raise StatusError(HTTPStatus.BAD_REQUEST, str(error)) from error
    return MetricRequest(version, resource, Query(namespace, name, metric, objects, series))
