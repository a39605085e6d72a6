"""What a trigger asks for, read from its metadata. The job is always one of the ScaledObject's own namespace."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from inference_operator.autoscaling.metrics import DESIRED, METRICS, MetricError, MetricFault
from inference_operator.state.objects import Key


@dataclass(frozen=True, slots=True)
class Question:
    """A metric of one job, and the value of it that the HPA is to aim for."""

    job: Key
    metric: str
    target: float


def parse(namespace: str, metadata: Mapping[str, str]) -> Question:
    """Read `job`, `metric` (default: the workers wanted) and `target` (default 1, of the workers wanted alone).

    What else stands in the metadata is KEDA's own. Raises MetricError, with what to write.
    """
    name = metadata.get("job", "")
    if not namespace or not name:
        raise _wrong("write job: NAME, an InferenceJob in the ScaledObject's namespace, into the trigger's metadata")
    metric = metadata.get("metric", DESIRED)
    if metric not in METRICS:
        raise _wrong(f"there is no metric {metric!r}; InferenceJobs have {', '.join(METRICS)}")
    text = metadata.get("target", "1" if metric == DESIRED else "")
    try:
        target = float(text)
    except ValueError:
        target = math.nan
    if not (math.isfinite(target) and target > 0):
        raise _wrong(f"write target: NUMBER, above zero, into the trigger's metadata: what {metric} is to be; it is {text!r}")
    return Question(Key(namespace, name), metric, target)


def _wrong(text: str) -> MetricError:
    return MetricError(MetricFault.INVALID, text)
