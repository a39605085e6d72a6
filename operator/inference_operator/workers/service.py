"""The Service in front of a serving job's workers."""

from inference_operator.api import names
from inference_operator.state.endpoints import Port
from inference_operator.state.objects import Job
from inference_operator.workers.pod import Manifest, owner_reference
from inference_protocol.messages import GRPC_PORT, HTTP_PORT


def service_manifest(job: Job, *, headless: bool = False) -> Manifest:
    """Has no selector: its EndpointSlices are the operator's own (`workers/endpoints.py`). A headless one has no address either."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.headless_name(job.key.name) if headless else names.service_name(job.key.name),
            "namespace": job.key.namespace,
            "labels": labels(job),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            **({"clusterIP": "None"} if headless else {}),
            "ports": [
                {"name": name, "port": number, "targetPort": name, "appProtocol": protocol} for name, number, protocol in ports(job)
            ],
        },
    }


def is_tls(job: Job) -> bool:
    """Whether callers speak TLS."""
    return job.spec is not None and job.spec.serve is not None and job.spec.serve.tls is not None


def ports(job: Job) -> tuple[Port, ...]:
    """Name, number and application protocol of each port: the protocol's usual numbers, which workers have too."""
    http, grpc = ("https", "https") if is_tls(job) else ("http", "kubernetes.io/h2c")
    return ("http", HTTP_PORT, http), ("grpc", GRPC_PORT, grpc)


def labels(job: Job) -> dict[str, str]:
    """The labels of a job's Service and of its EndpointSlices."""
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_NAME: names.WORKER_NAME,
        names.LABEL_JOB: names.label_value(job.key.name),
        names.LABEL_JOB_UID: job.uid,
    }


def endpoint(job: Job) -> str:
    """Where the job answers, for clients inside the cluster."""
    scheme = "https" if is_tls(job) else "http"
    return f"{scheme}://{names.service_name(job.key.name)}.{job.key.namespace}.svc:{HTTP_PORT}"
