"""The documents of custom.metrics.k8s.io, in both versions, and metav1.Status for what goes wrong."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from inference_operator.api import job as job_api
from inference_operator.api.schema import API_VERSION, GROUP, rfc3339
from inference_operator.autoscaling.metrics import Value
from inference_operator.autoscaling.selectors import Selector

Document = dict[str, Any]

METRICS_GROUP = "custom.metrics.k8s.io"
# The newest first: it is what discovery prefers.
VERSIONS = ("v1beta2", "v1beta1")
RESOURCE = f"{job_api.PLURAL}.{GROUP}"

_REASONS = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
}


class StatusError(Exception):
    """An answer that is no success; the message is for whoever reads the HPA's conditions."""

    def __init__(self, code: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.code = code

    def document(self) -> Document:
        """As metav1.Status."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": _REASONS[self.code],
            "code": int(self.code),
        }


def group() -> Document:
    """APIGroup."""
    versions = [{"groupVersion": f"{METRICS_GROUP}/{v}", "version": v} for v in VERSIONS]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": METRICS_GROUP, "versions": versions, "preferredVersion": versions[0]}


def resources(version: str, metrics: Iterable[str]) -> Document:
    """APIResourceList: one entry a metric."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{METRICS_GROUP}/{version}",
        "resources": [
            {"name": f"{RESOURCE}/{name}", "singularName": "", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]}
            for name in metrics
        ],
    }


def values(version: str, found: Iterable[Value], selector: Selector) -> Document:
    """MetricValueList."""
    return {
        "kind": "MetricValueList",
        "apiVersion": f"{METRICS_GROUP}/{version}",
        "metadata": {},
        "items": [_item(version, value, selector) for value in found],
    }


def _item(version: str, value: Value, selector: Selector) -> Document:
    described = {"kind": job_api.KIND, "apiVersion": API_VERSION, "namespace": value.key.namespace, "name": value.key.name}
    common = {"describedObject": described, "timestamp": rfc3339(value.time), "value": f"{value.milli}m"}
    if version == "v1beta1":
        return {**common, "metricName": value.metric, "window": value.window_seconds, "selector": selector.document()}
    return {
        **common,
        "metric": {"name": value.metric, "selector": selector.document()},
        "windowSeconds": value.window_seconds,
    }
