"""What a place costs, and whether work would be in time there."""

from datetime import datetime

from inference_operator.api.instants import shift
from inference_operator.api.job_status import CostTerms
from inference_operator.scheduling.types import Option
from inference_operator.settings import CostWeights


def total_cost(option: Option, weights: CostWeights, delay_weight: float = 1.0) -> float:
    """Delay weight * latency + alpha * energy + beta * switch, in seconds, on this class."""
    seconds = option.estimate.total_seconds
    return delay_weight * seconds + weights.alpha * option.watts * seconds + weights.beta * option.estimate.load_seconds


def cost_terms(option: Option, weights: CostWeights, delay_weight: float = 1.0) -> CostTerms:
    """The same cost, with its terms."""
    seconds = option.estimate.total_seconds
    return CostTerms(
        total=round(total_cost(option, weights, delay_weight), 3),
        latency_seconds=round(seconds, 3),
        energy_joules=round(option.watts * seconds, 1),
        switch_seconds=round(option.estimate.load_seconds, 3),
        estimated=not option.estimate.measured,
    )


def completion(option: Option, now: datetime) -> datetime:
    """When a worker that starts now on this class would be done."""
    return shift(now, option.estimate.total_seconds)


def in_time(option: Option, deadline: datetime | None, now: datetime) -> bool:
    """Whether this class would meet the deadline; always, where there is none."""
    return deadline is None or completion(option, now) <= deadline
