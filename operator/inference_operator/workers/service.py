"""The Service in front of a serving job's workers."""

from inference_operator.api import names
from inference_operator.state.objects import Job
from inference_operator.workers.pod import Manifest, owner_reference
from inference_protocol.messages import GRPC_PORT, HTTP_PORT


def service_manifest(job: Job) -> Manifest:
    """Selects the job's ready workers; the ports have the protocol's usual numbers."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.service_name(job.key.name),
            "namespace": job.key.namespace,
            "labels": {
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_NAME: names.WORKER_NAME,
                names.LABEL_JOB: names.label_value(job.key.name),
                names.LABEL_JOB_UID: job.uid,
            },
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "selector": names.selector(job.uid),
            "ports": [
                {"name": "http", "port": HTTP_PORT, "targetPort": "http", "appProtocol": "https" if is_tls(job) else "http"},
                {
                    "name": "grpc",
                    "port": GRPC_PORT,
                    "targetPort": "grpc",
                    "appProtocol": "https" if is_tls(job) else "kubernetes.io/h2c",
                },
            ],
        },
    }


def is_tls(job: Job) -> bool:
    """Whether callers speak TLS."""
    return job.spec is not None and job.spec.serve is not None and job.spec.serve.tls is not None


def endpoint(job: Job) -> str:
    """Where the job answers, for clients inside the cluster."""
    scheme = "https" if is_tls(job) else "http"
    return f"{scheme}://{names.service_name(job.key.name)}.{job.key.namespace}.svc:{HTTP_PORT}"
