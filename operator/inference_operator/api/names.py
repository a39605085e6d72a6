"""Names, labels and annotations of everything that the operator makes: deterministic, so that making twice is making once."""

import hashlib
import re
from collections.abc import Mapping

FIELD_MANAGER = "inference-operator"
DOMAIN = "inference.myorg"

LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_NAME = "app.kubernetes.io/name"
LABEL_JOB_UID = f"{DOMAIN}/job-uid"
LABEL_JOB = f"{DOMAIN}/job"
LABEL_MODEL_UID = f"{DOMAIN}/model-uid"
LABEL_MODEL = f"{DOMAIN}/model"
LABEL_ATTEMPT = f"{DOMAIN}/attempt"
LABEL_REVISION = f"{DOMAIN}/revision"
# The model that a service's worker answers for, whichever job it is of.
LABEL_SERVES = f"{DOMAIN}/serves"
# The uid of the job that a placeholder pod keeps a place for. No Service, budget or monitor selects such a pod.
LABEL_PLACEHOLDER = f"{DOMAIN}/placeholder-for"
LABEL_ACCELERATOR = f"{DOMAIN}/accelerator"
# What is made for gateways of others, apart from all else that is the operator's.
LABEL_MADE_FOR = f"{DOMAIN}/made-for"
ANNOTATION_AUTOSCALER = f"{DOMAIN}/autoscaler-revision"
ANNOTATION_PLACEMENT = f"{DOMAIN}/placement"
# The replica that answers for the custom metrics API.
ANNOTATION_LEADER = f"{DOMAIN}/leader"
# On the Lease: its holder, and where that listens for as long as it lives.
ANNOTATION_HOLDER = f"{DOMAIN}/holder"
# The CAs, in PEM, by which a worker knows the operator until it has a certificate of its own.
ANNOTATION_TRUST = f"{DOMAIN}/trust"
# On a Workload of Kueue's that the job's own suspend has made inactive: what others made inactive stays so.
ANNOTATION_SUSPENDED = f"{DOMAIN}/suspended"
# What the cluster autoscaler asks of pods before it empties a node.
ANNOTATION_MOVABLE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
ANNOTATION_MOVABLE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"

MANAGED_BY = "inference-operator"
WORKER_NAME = "inference-worker"
PLACEHOLDER_NAME = "inference-placeholder"
CONTAINER = "worker"

_LABEL_LIMIT = 63
_BUDGET = "-workers"
_HEADLESS = "-headless"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def short_hash(text: str, length: int = 8) -> str:
    """A few hex digits that stand for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def label_value(name: str) -> str:
    """A name as a label value: itself where it fits, else its head and a hash (labels end at 63, names at 253)."""
    if len(name) <= _LABEL_LIMIT:
        return name
    return f"{name[: _LABEL_LIMIT - 9].rstrip('-.')}-{short_hash(name)}"


def pod_name(job: str, uid: str, number: int) -> str:
    """The worker pod of an attempt (batch) or with a serial number (serve); differs for jobs of one name in turn."""
    tail = f"-{short_hash(uid, 10)}-{number}"
    head = job[: _LABEL_LIMIT - len(tail)].rstrip("-.").replace(".", "-")
    return head + tail


def placeholder_name(job: str, uid: str, number: int) -> str:
    """The placeholder pod of a job with this number."""
    tail = f"-{short_hash(uid, 10)}-new-{number}"
    head = job[: _LABEL_LIMIT - len(tail)].rstrip("-.").replace(".", "-")
    return head + tail


def workload_name(job: str, uid: str) -> str:
    """The Workload by which Kueue queues a batch."""
    tail = f"-{short_hash(uid, 10)}"
    head = job[: _LABEL_LIMIT - len(tail)].rstrip("-.").replace(".", "-")
    return head + tail


def service_name(job: str) -> str:
    """The job's Service: its own name where that is a DNS label, else one made from it."""
    if len(job) <= _LABEL_LIMIT and _DNS_LABEL.fullmatch(job):
        return job
    head = re.sub(r"[^-a-z0-9]", "-", job)[: _LABEL_LIMIT - 11].strip("-")
    return f"j-{head}-{short_hash(job)}" if not head[:1].isalpha() else f"{head}-{short_hash(job)}"


def headless_name(job: str) -> str:
    """The Service whose name resolves to the workers' own addresses."""
    return _derived(job, _HEADLESS)


def budget_name(job: str) -> str:
    """The PodDisruptionBudget of a serving job's workers."""
    return _derived(job, _BUDGET)


def _derived(job: str, tail: str) -> str:
    name = service_name(job)
    head = name if len(name) + len(tail) <= _LABEL_LIMIT else f"{name[:44].rstrip('-')}-{short_hash(job)}"
    return head + tail


def route_name(model: str, version: str, tail: str) -> str:
    """A route or pool of a version of a model: a DNS label that begins with the model's name as far as it can."""
    head = re.sub(r"[^-a-z0-9]", "-", model.lower())[: _LABEL_LIMIT - 20 - len(tail)].strip("-")
    return (
        f"inference-{head}-{short_hash(f'{model}@{version}')}{tail}"
        if head
        else f"inference-{short_hash(f'{model}@{version}')}{tail}"
    )


def serving(model: str) -> dict[str, str]:
    """Labels that select all workers that answer for a model in a namespace."""
    value = label_value(model) if _LABEL_VALUE.fullmatch(label_value(model)) else short_hash(model)
    return {LABEL_SERVES: value}


def selector(uid: str) -> dict[str, str]:
    """Labels that select the workers of one job."""
    return {LABEL_JOB_UID: uid}


def owner_uid(labels: Mapping[str, str]) -> str | None:
    """The uid of what a pod of ours belongs to: a job, or for a warm worker a model."""
    return labels.get(LABEL_JOB_UID) or labels.get(LABEL_PLACEHOLDER) or labels.get(LABEL_MODEL_UID)
