"""What one decision looks at: a snapshot of one job, or of one model's warm pool."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from inference_operator.state.kueue import KueueObserved
from inference_operator.state.load import ScalingMetrics
from inference_operator.state.node_caches import NodeModel
from inference_operator.state.objects import (
    Autoscaler,
    Budget,
    CreateFailure,
    Job,
    Key,
    MetricsApi,
    MetricsApiState,
    Model,
    Pod,
    Reading,
    TaskId,
)
from inference_operator.state.power import Drawn
from inference_operator.state.runner import Attempt, own_attempt
from inference_operator.state.topology import Terms
from inference_operator.state.volumes import Claim, deleting
from inference_protocol.messages import ModelFacts


@dataclass(frozen=True, slots=True)
class BackgroundWork:
    """A batch that runs on a service's worker: since when, and what it has had of the device, as far as the worker has told."""

    job: Key
    pod: Key
    since: datetime | None
    runs: int = 0
    computed_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LendingService:
    """The service on whose worker a batch runs, and its load."""

    service: Key
    target_seconds: float | None
    scaling_metrics: ScalingMetrics | None


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that the decisions about one job look at: a snapshot.

    `lent_by` is the service in whose slack a batch runs. `background` are the batches that run in that of this service, and
    `orphaned_tasks` those on its workers whose job is gone or has gone on elsewhere.
    """

    job: Job
    model: Model | None
    # Worker pods of the job's own.
    pods: tuple[Pod, ...]
    # Placeholder pods of the job's own, and for a job that has any, when each node was made.
    placeholders: tuple[Pod, ...] = ()
    nodes_created: Mapping[str, datetime] = field(default_factory=dict)
    has_service: bool = False
    has_headless: bool = False
    budget: Budget | None = None
    create_failure: CreateFailure | None = None
    autoscaler_failure: CreateFailure | None = None
    budget_failure: CreateFailure | None = None
    # Uids of pods whose node is gone or out of reach. They may never end, so nothing waits for them.
    lost: frozenset[str] = frozenset()
    # Uids of pods of which the operator's own polls hear nothing. They may live, so what is done about it has to be safe.
    silent: frozenset[str] = frozenset()
    # Uids of pods whose node was announced to go. They work on until others have their place.
    moving: frozenset[str] = frozenset()
    readings: dict[str, Reading] = field(default_factory=dict)
    # What the devices of these pods have drawn, by the pods' and the devices' uids.
    meters: Mapping[str, Mapping[str, Drawn]] = field(default_factory=dict)
    scaling_metrics: ScalingMetrics | None = None
    # The newest attempt, where a warm worker runs it.
    hosted: Attempt | None = None
    # When a worker of the job was last seen to have requests; None where nobody watches it, or it has no worker.
    idle_since: datetime | None = None
    lent_by: LendingService | None = None
    background: tuple[BackgroundWork, ...] = ()
    orphaned_tasks: tuple[tuple[Key, TaskId], ...] = ()
    # HPAs that scale this job, and one that has the name that ours would have.
    autoscalers: tuple[Autoscaler, ...] = ()
    metrics_api: MetricsApi = field(default_factory=lambda: MetricsApi(MetricsApiState.DISABLED))
    # The claims of the job's namespace whose volumes can't be mounted everywhere, and where they can.
    volumes: Mapping[str, Terms] = field(default_factory=dict)
    # All claims of the job's namespace, by name.
    claims: Mapping[str, Claim] = field(default_factory=dict)
    # How models of the job's namespace stand in the caches of nodes, by node and digest; nodes without a cache aren't there.
    node_models: Mapping[str, Mapping[str, NodeModel]] = field(default_factory=dict)
    kueue: KueueObserved = field(default_factory=KueueObserved)

    def facts_of(self, attempt: Attempt | None) -> ModelFacts | None:
        """What a worker has said about its model: at its end, else when it was last asked."""
        if attempt is None:
            return None
        if attempt.report is not None and attempt.report.model is not None:
            return attempt.report.model
        reading = self.readings.get(attempt.pod.uid)
        return reading.telemetry.model if reading is not None else None

    @property
    def live(self) -> tuple[Pod, ...]:
        """Workers that may still come to something."""
        return _live(self.pods, self.lost)

    def keeps_a_claim(self, pod: Pod) -> bool:
        """Whether an ended pod keeps a claim from going: the API server holds one back for as long as any pod names it."""
        return pod.terminal and not pod.deleting and deleting(pod.claims, self.claims)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """All attempts of a batch that are still to be seen."""
        own = tuple(own_attempt(pod) for pod in self.pods)
        return (*own, self.hosted) if self.hosted is not None else own


@dataclass(frozen=True, slots=True)
class PoolObserved:
    """Everything that the decisions about a model's warm pool look at: a snapshot.

    `tasks` counts the tasks on each worker, `busy_seconds` is what they should still take, `idle_seconds` (by uid) how long a
    worker says that it has had none, `colocated` the files of other models that it says it has loaded, `device_free_bytes` what its
    own model has left of its device. `orphaned_tasks` are those whose job is gone or has gone on elsewhere, with their worker.
    """

    model: Model
    pods: tuple[Pod, ...]
    tasks: dict[Key, int] = field(default_factory=dict)
    busy_seconds: dict[Key, float] = field(default_factory=dict)
    idle_seconds: dict[str, float] = field(default_factory=dict)
    colocated: dict[Key, frozenset[str]] = field(default_factory=dict)
    device_free_bytes: dict[Key, int] = field(default_factory=dict)
    volumes: Mapping[str, Terms] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    orphaned_tasks: tuple[tuple[Key, TaskId], ...] = ()
    create_failure: CreateFailure | None = None
    lost: frozenset[str] = frozenset()

    @property
    def live(self) -> tuple[Pod, ...]:
        """Workers that may still come to something."""
        return _live(self.pods, self.lost)


def _live(pods: tuple[Pod, ...], lost: frozenset[str]) -> tuple[Pod, ...]:
    return tuple(pod for pod in pods if not pod.over and not pod.deleting and pod.uid not in lost)
