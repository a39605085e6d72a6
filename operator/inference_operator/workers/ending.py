"""How a worker ended, as the job's status tells it."""

from dataclasses import dataclass

from inference_operator.api.conditions import AnyReason
from inference_operator.api.job_status import AttemptOutcome
from inference_protocol.reasons import PERMANENT


@dataclass(frozen=True, slots=True)
class Ending:
    """How one pod ended."""

    outcome: AttemptOutcome
    reason: AnyReason
    message: str

    @property
    def permanent(self) -> bool:
        """Whether another attempt would meet the same fault."""
        return self.reason in PERMANENT
