"""What KEDA is told of a job: the same numbers as the HPA, and whether there is a reason to have workers at all."""

from inference_operator.api.job import Serve
from inference_operator.autoscaling.controller import counts_for_hpa
from inference_operator.autoscaling.keda.questions import Question
from inference_operator.autoscaling.metrics import DESIRED, Metrics, Query
from inference_operator.state.objects import Job
from inference_operator.state.store import Store


class Scaler:
    """Looks jobs up in the store. What is not known is a MetricError, never a number and never "inactive"."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    def active(self, question: Question) -> bool:
        """Whether the job is to have workers: it always keeps some, or they had requests in the window. Raises MetricError."""
        job = self._metrics.job(question.job)
        if _kept(job) > 0:
            return True
        if self._at_rest(job):
            return False
        scaling_metrics = self._metrics.scaling_metrics(job)
        load = scaling_metrics.load
        return bool(load.arrived or load.count or load.busy or scaling_metrics.workers.queued)

    def value(self, question: Question) -> float:
        """The metric, in its own unit. Raises MetricError."""
        job = self._metrics.job(question.job)
        if question.metric == DESIRED and self._at_rest(job):
            return float(_kept(job))
        (found,) = self._metrics.values(Query(job.key.namespace, job.key.name, question.metric))
        return found.milli / 1000

    def _at_rest(self, job: Job) -> bool:
        """No worker is asked for and none stays: nothing can be measured, and nobody sees a request that comes now.

        That is no outage. KEDA asks for a value first and hears nothing of activity where that is an error, so there must be one.
        """
        spec = job.spec
        resting = spec is not None and spec.input is None and spec.replicas == 0
        # Workers that are being deleted are not asked any more, and finish what they have.
        staying = [pod for pod in self._store.workers_of(job) if counts_for_hpa(pod) and not pod.deleting]
        return resting and not staying


def _kept(job: Job) -> int:
    """Workers that the job has whatever an autoscaler asks for."""
    if job.spec is None or job.spec.input is not None or job.spec.suspend:
        return 0
    return (job.spec.serve or Serve()).min_replicas
