"""On time against energy: what the weights of the cost function trade. Energy is modelled by declared watts, not measured."""

from typing import Any

from bench.report import Bar, at_most
from bench.scheduling.figures import paired, summary
from bench.scheduling.simulate import Ours, Outcome, Simulation
from bench.scheduling.workload import generate
from inference_operator.settings import CostWeights

ALPHAS = (0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.1)
EARLY = (1.0, 0.1, CostWeights().early, 0.0)
SETTINGS = ((1.0, 0.8), (4.0, 1.0))


def front(seeds: range) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Each point of the front beside the defaults, on the same workloads."""
    cells: list[dict[str, Any]] = []
    bars: list[Bar] = []
    default = CostWeights()
    points = [CostWeights(alpha=alpha, beta=default.beta, early=1.0) for alpha in ALPHAS]
    points += [CostWeights(alpha=default.alpha, beta=default.beta, early=early) for early in EARLY[1:]]
    for variation, load in SETTINGS:
        workloads = [generate(seed, load=load, variation=variation) for seed in seeds]
        found = {point: [Simulation(jobs).run(Ours(point)) for jobs in workloads] for point in points}
        usual = found[default]
        for point, outcomes in found.items():
            cells.append(
                {
                    "arrivals": f"CV {variation:g}", "load": load, "alpha": point.alpha, "early": point.early,
                    "onTime": summary([o.on_time for o in outcomes]),
                    "joulesAJobOnTime": summary(_thrift(outcomes), 1),
                    "turnaroundTicks": summary([o.turnaround for o in outcomes], 2),
                    "startsOnGpu": summary([o.on_gpu for o in outcomes]),
                    "onTimeLessDefault": paired([o.on_time for o in outcomes], [o.on_time for o in usual]),
                    "joulesLessDefault": paired(_thrift(outcomes), _thrift(usual), 1),
                }
            )  # fmt: skip
        bars += _ends(found, f"{'bursts' if variation > 1 else 'poisson'}-{load:g}")
    return cells, bars


def _ends(found: dict[CostWeights, list[Outcome]], name: str) -> list[Bar]:
    """Both ends are what they claim to be: with alpha 0 nothing is sooner, with much of it nothing uses fewer GPUs."""
    turnaround = {point: sum(o.turnaround for o in outcomes) for point, outcomes in found.items()}
    gpus = {point: sum(o.on_gpu for o in outcomes) for point, outcomes in found.items()}
    first, last = CostWeights(alpha=0.0, early=1.0), CostWeights(alpha=ALPHAS[-1], early=1.0)
    return [
        at_most(
            f"scheduling.soonest-{name}", "alpha 0: turnaround over the least", turnaround[first] / min(turnaround.values()), 1.0
        ),
        at_most(f"scheduling.thriftiest-{name}", "alpha large: GPU starts over the fewest", gpus[last] / min(gpus.values()), 1.0),
    ]


def _thrift(outcomes: list[Outcome]) -> list[float]:
    """Joules for each job on time: what is dropped saves no energy."""
    return [o.joules / max(o.on_time, 1e-9) / 120 for o in outcomes]
