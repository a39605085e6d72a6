"""One attempt at a batch's work, whoever runs it: a pod of its own, or a warm worker among its other tasks."""

from dataclasses import dataclass
from datetime import datetime

from inference_operator.api.job_status import Placement
from inference_operator.state.objects import Pod, PodPhase
from inference_protocol.messages import TaskState, TerminationReport


@dataclass(frozen=True, slots=True)
class OwnPod:
    """A pod that was created for the attempt and ends with it."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class HostedTask:
    """A task on a warm worker. `state` is None until the worker has said how the task stands, which ordering it makes it do.

    `waited` says that the worker has ended while it ran another task, as far as is known.
    """

    pod: Pod
    state: TaskState | None
    waited: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt stands. `runner.pod` is the pod that it runs in; all other fields are the attempt's own.

    `revision` is the hash of what it was made of; None for a hosted task that its worker has not confirmed yet. `leaving` says that
    it was told to stop, `terminal` that it holds nothing any more.
    """

    number: int
    runner: OwnPod | HostedTask
    revision: str | None
    accelerator: str
    placement: Placement | None
    running: bool
    leaving: bool
    terminal: bool
    report: TerminationReport | None
    created: datetime | None
    started: datetime | None
    ended: datetime | None

    @property
    def pod(self) -> Pod:
        """The pod that it runs in: its own, or the warm worker's."""
        return self.runner.pod

    @property
    def over(self) -> bool:
        """Whether it has ended, though its pod may still hold the place: another container in it goes on."""
        return self.terminal or self.pod.over

    @property
    def hosted(self) -> HostedTask | None:
        """The task on a warm worker that it is; None for one with a pod of its own."""
        return self.runner if isinstance(self.runner, HostedTask) else None


def is_running(pod: Pod | None) -> bool:
    """Return whether a worker has its model and answers: a pod with a container that is not ready gets no requests."""
    return pod is not None and pod.phase is PodPhase.RUNNING and pod.ready and not pod.deleting and not pod.over


def _is_working(pod: Pod) -> bool:
    """Whether a batch's worker has its model: nobody asks it anything, so what is beside it need not be ready."""
    return is_running(pod) or (pod.phase is PodPhase.RUNNING and pod.worker_ready and not pod.deleting and not pod.over)


def own_attempt(pod: Pod) -> Attempt:
    """Return the attempt (or the replica) that a worker pod is."""
    worker = pod.worker
    return Attempt(
        number=pod.number,
        runner=OwnPod(pod),
        revision=worker.revision if worker is not None else None,
        accelerator=worker.accelerator if worker is not None else "",
        placement=worker.placement if worker is not None else None,
        running=_is_working(pod),
        leaving=pod.deleting,
        terminal=pod.terminal,
        report=pod.report,
        created=pod.created,
        started=pod.started,
        ended=pod.ended,
    )
