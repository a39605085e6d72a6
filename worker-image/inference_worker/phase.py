"""The phases of a worker, and which may follow which."""

from collections.abc import Mapping
from enum import StrEnum


class WorkerPhase(StrEnum):
    """Where a worker stands between its start and its end."""

    LOADING = "Loading"
    """No model has been loaded yet."""

    READY = "Ready"
    """The model is loaded, verified, warmed and on the promised provider; its engine is there, and no run hangs."""

    UNAVAILABLE = "Unavailable"
    """The model was loaded and does not answer now: it is unloaded, its engine is away, or a run hangs."""

    DRAINING = "Draining"
    """The worker was told to stop: it answers whoever is there, and others should go elsewhere."""

    FAILED = "Failed"
    """The worker can't do its work any more, and ends."""


TRANSITIONS: Mapping[WorkerPhase, frozenset[WorkerPhase]] = {
    WorkerPhase.LOADING: frozenset({WorkerPhase.READY}),
    WorkerPhase.READY: frozenset({WorkerPhase.UNAVAILABLE, WorkerPhase.DRAINING, WorkerPhase.FAILED}),
    WorkerPhase.UNAVAILABLE: frozenset({WorkerPhase.READY, WorkerPhase.DRAINING, WorkerPhase.FAILED}),
    WorkerPhase.DRAINING: frozenset(),
    WorkerPhase.FAILED: frozenset(),
}
"""A worker that ends while it loads changes its phase no more: its process ends with the reason."""


class IllegalTransitionError(Exception):
    """A change of phase that TRANSITIONS does not have: a fault of our own."""


class PhaseMachine:
    """A worker's phase. Only `enter` changes it."""

    __slots__ = ("_phase",)

    def __init__(self, phase: WorkerPhase = WorkerPhase.LOADING) -> None:
        self._phase = phase

    @property
    def phase(self) -> WorkerPhase:
        """The phase that was entered last."""
        return self._phase

    def enter(self, phase: WorkerPhase) -> None:
        """Change the phase; to stay in it is no change. Raises IllegalTransitionError."""
        if phase is self._phase:
            return
        if phase not in TRANSITIONS[self._phase]:
            raise IllegalTransitionError(f"a worker that is {self._phase} can't become {phase}")
        self._phase = phase
