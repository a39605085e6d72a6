"""Jobs, workers, pools, models and nodes in numbers, made from the store when somebody scrapes: what is gone has no series."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from heapq import nsmallest

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inference_operator.api.condition_types import ConditionType
from inference_operator.api.conditions import Truth, find
from inference_operator.api.job_status import Phase
from inference_operator.api.model import Profile
from inference_operator.observability.history import NAMESPACES, kind_of, reason_of
from inference_operator.observability.jobs import LABELS
from inference_operator.observability.namespaces import NamespaceLabels
from inference_operator.state.finished import is_finished
from inference_operator.state.objects import Job, Node, Pod
from inference_operator.state.store import Store

SLACK_SERIES = 500
"""Jobs whose slack has a series: those with the least."""
MODEL_SERIES = 500
"""Models whose pool and load times have series: the first by name."""

_PHASES = frozenset(map(str, Phase))


class ClusterCollector(Collector):
    """Counts what the store holds. Ten thousand jobs take a few hundredths of a second."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """All families."""
        jobs = list(self._store.jobs.values())
        yield from _of_jobs(jobs, self._now())
        yield _workers(self._store, {job.uid: job for job in jobs})
        yield _placeholders(self._store)
        yield from _of_models(self._store)
        yield _family(
            "inference_nodes",
            "Nodes by state: ready, unschedulable, silent (no worker there answers the operator), or unready.",
            ("state",),
            Counter((_state_of_node(node, silent=node.name in self._store.silent_nodes),) for node in self._store.nodes.values()),
        )


def _family(name: str, text: str, labels: tuple[str, ...], found: Mapping[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in sorted(found.items()):
        family.add_metric(key, value)
    return family


def _of_jobs(jobs: list[Job], now: datetime) -> Iterator[Metric]:
    label = NamespaceLabels(NAMESPACES).label
    phases: Counter[tuple[str, ...]] = Counter()
    outlooks: Counter[tuple[str, ...]] = Counter()
    waits: defaultdict[tuple[str, ...], float] = defaultdict(float)
    slack: list[tuple[int, Job]] = []
    for job in jobs:
        status, namespace = job.status, label(job.key.namespace)
        phase = status.phase if status.phase in _PHASES else None
        phases[namespace, kind_of(job), phase or "", reason_of(status.reason)] += 1
        if is_finished(job):
            continue
        if status.deadline is not None:
            outlooks[namespace, kind_of(job), status.deadline.outlook.value] += 1
            if status.deadline.slack_seconds is not None:
                slack.append((status.deadline.slack_seconds, job))
        if phase == Phase.WAITING:
            waits[(namespace,)] = max(waits[(namespace,)], (now - _waits_since(job)).total_seconds())
    yield _family("inference_jobs", "InferenceJobs by phase and reason.", ("namespace", "kind", "phase", "reason"), phases)
    yield _family(
        "inference_open_deadlines",
        "InferenceJobs that have not ended and have a deadline, by its outlook.",
        ("namespace", "kind", "outlook"),
        outlooks,
    )
    yield _family(
        "inference_longest_wait_seconds", "For how long the job waits that has waited longest for a place.", ("namespace",), waits
    )
    least = nsmallest(SLACK_SERIES, slack, key=lambda found: found[0])
    yield _family(
        "inference_job_slack_seconds",
        f"Deadline less expected completion, negative is late: of the {SLACK_SERIES} jobs with the least that have not ended.",
        LABELS,
        {tuple(job.key): seconds for seconds, job in least},
    )


def _waits_since(job: Job) -> datetime:
    placed = find(job.status.conditions, ConditionType.PLACED)
    return placed.last_transition_time if placed is not None and placed.status is not Truth.TRUE else job.created


def _placeholders(store: Store) -> Metric:
    living = [pod for pod in store.placeholders if not pod.terminal]
    return _family(
        "inference_placeholder_pods",
        "Placeholder pods, for each of which the cluster's autoscaler is to add a node, by accelerator class: pending, or bound.",
        ("accelerator", "state"),
        Counter((pod.placeholder.accelerator, "bound" if pod.node else "pending") for pod in living if pod.placeholder is not None),
    )


def _workers(store: Store, jobs: Mapping[str, Job]) -> Metric:
    label = NamespaceLabels(NAMESPACES).label
    found: Counter[tuple[str, ...]] = Counter()
    for pod in store.pods.values():
        if pod.worker is None or pod.terminal:
            continue
        job = jobs.get(pod.worker.job_uid)
        kind = "pool" if pod.worker.pool else kind_of(job) if job is not None else ""
        found[label(pod.key.namespace), kind, pod.worker.accelerator, _state_of_worker(pod)] += 1
    return _family(
        "inference_workers",
        "Worker pods that have not ended, by whose they are (batch, service, pool) and state: starting, ready or ending.",
        ("namespace", "kind", "accelerator", "state"),
        found,
    )


def _state_of_worker(pod: Pod) -> str:
    return "ending" if pod.deleting else "ready" if pod.ready else "starting"


def _state_of_node(node: Node, *, silent: bool) -> str:
    if not node.ready:
        return "unready"
    return "unschedulable" if node.unschedulable else "silent" if silent else "ready"


def _of_models(store: Store) -> Iterator[Metric]:
    pools: dict[tuple[str, ...], float] = {}
    loads: dict[tuple[str, ...], float] = {}
    for key, model in sorted(store.models.items())[:MODEL_SERIES]:
        if model.spec is not None and model.spec.warm_pool is not None:
            pods = [pod for pod in store.workers_of(model) if not pod.terminal and not pod.deleting]
            ready = [pod for pod in pods if pod.ready]
            busy = sum(bool(store.task_index.on(pod.key)) for pod in ready)
            counts = {"starting": len(pods) - len(ready), "idle": len(ready) - busy, "busy": busy}
            pools.update({(*key, state): count for state, count in counts.items()})
        newest: dict[str, Profile] = {}
        for profile in sorted(model.status.profiles, key=lambda profile: profile.observed_time):
            newest[profile.accelerator] = profile
        loads.update({(*key, accelerator): profile.load_seconds for accelerator, profile in newest.items()})
    yield _family(
        "inference_pool_workers",
        "Workers of a model's warm pool by state: starting, idle or busy.",
        ("namespace", "model", "state"),
        pools,
    )
    yield _family(
        "inference_model_load_seconds",
        "From a worker's start until the model was warmed up, as measured last on an accelerator class.",
        ("namespace", "model", "accelerator"),
        loads,
    )
