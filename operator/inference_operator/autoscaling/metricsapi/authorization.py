"""Whether somebody may ask: the API server decides, by SubjectAccessReview, and its word holds for ten seconds."""

from inference_operator.autoscaling.metricsapi.authentication import Identity
from inference_operator.autoscaling.metricsapi.budget import ReviewBudget
from inference_operator.autoscaling.metricsapi.cache import TimedCache
from inference_operator.autoscaling.metricsapi.documents import METRICS_GROUP
from inference_operator.autoscaling.metricsapi.queries import Discovery, MetricRequest
from inference_operator.kube.ports import Raw

SECONDS = 10.0
# Always allowed, as by the API server itself: the aggregator's own checks come as a member.
MASTERS = "system:masters"


class Access:
    """Asks, and remembers."""

    def __init__(self, reviews: ReviewBudget, cache: TimedCache[str, bool]) -> None:
        self._reviews = reviews
        self._cache = cache

    async def allows(self, identity: Identity, what: Discovery | MetricRequest) -> bool:
        """Whether it is allowed. Raises OperatorError when that can't be found out."""
        if MASTERS in identity.groups:
            return True
        spec = review(identity, what)
        return await self._cache.get(repr(spec), lambda: self._ask(spec))

    async def _ask(self, spec: Raw) -> bool:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._reviews.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return bool((answer.get("status") or {}).get("allowed"))


def review(identity: Identity, what: Discovery | MetricRequest) -> Raw:
    """The spec of a SubjectAccessReview. The metric is a subresource of the object, as the path has it."""
    user: Raw = {
        "user": identity.name,
        "groups": list(identity.all_groups),
        "extra": {key: list(values) for key, values in identity.extra.items()},
        **({"uid": identity.uid} if identity.uid else {}),
    }
    if isinstance(what, Discovery):
        return {**user, "nonResourceAttributes": {"path": what.path, "verb": "get"}}
    attributes = {
        "group": METRICS_GROUP,
        "version": what.version,
        "namespace": what.query.namespace,
        "resource": what.resource,
        "subresource": what.query.metric,
        "name": what.query.name,
        "verb": "get",
    }
    return {**user, "resourceAttributes": attributes}
