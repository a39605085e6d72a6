"""`suspend`, `resume` and `retry`."""

from typing import Annotated

from inference_client.api import InferenceJob
from kubectl_inference import draw
from kubectl_inference.options import KIND, Context, Job, Kubeconfig, Namespace, connected, waiting


def suspend(job: Job, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Stop a job's workers. A batch keeps what it has committed."""
    with connected(kubeconfig, context, namespace) as client:
        _say(client.jobs.suspend(job), "suspended")


def resume(job: Job, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Let a suspended job go on where it was."""
    with connected(kubeconfig, context, namespace) as client:
        _say(client.jobs.resume(job), "resumed")


def retry(
    job: Job,
    namespace: Namespace = None,
    timeout: Annotated[float, waiting("1m")] = 60.0,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Run a failed job again as it is.

    A batch has all its attempts again, a service makes a new worker without its pause.
    """
    with connected(kubeconfig, context, namespace) as client:
        _say(client.jobs.retry(job, timeout=timeout), "retried")


def _say(job: InferenceJob, verb: str) -> None:
    draw.lines([f"{KIND}/{job.metadata.name} {verb}"])
