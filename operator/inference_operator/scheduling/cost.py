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
    """The same cost, with its terms and weights as a reader would multiply and add them."""
    seconds = option.estimate.total_seconds
    latency, energy, switch = round(seconds, 3), round(option.watts * seconds, 1), round(option.estimate.load_seconds, 3)
    weight = float(f"{delay_weight:.4g}")
    return CostTerms(
        total=round(weight * latency + weights.alpha * energy + weights.beta * switch, 3),
        latency_weight=weight,
        energy_weight=weights.alpha,
        switch_weight=weights.beta,
        latency_seconds=latency,
        energy_joules=energy,
        switch_seconds=switch,
        estimated=not option.estimate.measured,
    )


def completion(option: Option, now: datetime) -> datetime:
    """When a worker that starts now on this class would be done."""
    return shift(now, option.estimate.total_seconds)


def in_time(option: Option, deadline: datetime | None, now: datetime) -> bool:
    """Whether this class would meet the deadline; always, where there is none."""
    return deadline is None or completion(option, now) <= deadline
