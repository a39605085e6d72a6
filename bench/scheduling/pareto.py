"""On time against energy: what the weights of the cost function trade. Energy is modelled by declared watts, not measured."""

from typing import Any

from bench.report import Target, at_most
from bench.scheduling.figures import paired, summary
from bench.scheduling.simulate import WATTS, Ours, Outcome, Simulation
from bench.scheduling.workload import SimJob, generate
from inference_operator.settings import CostWeights

ALPHAS = (0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.1)
EARLY = (1.0, 0.1, CostWeights().early, 0.0)
SETTINGS = ((1.0, 0.8), (4.0, 1.0))


def front(seeds: range) -> tuple[list[dict[str, Any]], list[Target]]:
    """Each point of the front beside the defaults, on the same workloads."""
    scenarios: list[dict[str, Any]] = []
    default = CostWeights()
    points = [CostWeights(alpha=alpha, beta=default.beta, early=1.0) for alpha in ALPHAS]
    points += [CostWeights(alpha=default.alpha, beta=default.beta, early=early) for early in EARLY[1:]]
    for variation, load in SETTINGS:
        workloads = [generate(seed, load=load, variation=variation) for seed in seeds]
        found = {point: [Simulation(jobs).run(Ours(point)) for jobs in workloads] for point in points}
        usual = found[default]
        for point, outcomes in found.items():
            scenarios.append(
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
    return scenarios, _ends(seeds)


def _ends(seeds: range) -> list[Target]:
    """Both ends in closed form, where no job meets another: the quickest class, and the thriftiest of those that are in time."""
    off_soonest = off_thriftiest = 0.0
    for seed in seeds:
        jobs = generate(seed, load=0.0005)
        soonest = Simulation(jobs).run(Ours(CostWeights(alpha=0.0, beta=0.0, early=1.0)))
        thriftiest = Simulation(jobs).run(Ours(CostWeights(alpha=1.0, beta=0.0, early=0.0)))
        least_ticks = sum(min(job.on_gpu, job.on_cpu) for job in jobs) / len(jobs)
        off_soonest = max(off_soonest, abs(soonest.turnaround / least_ticks - 1))
        off_thriftiest = max(off_thriftiest, abs(thriftiest.joules / sum(_least_joules(job) for job in jobs) - 1))
    return [
        at_most("scheduling.soonest", "alpha 0: mean turnaround, relative to the least that there is", off_soonest, 1e-9),
        at_most("scheduling.thriftiest", "alpha large: energy, relative to the least that is in time", off_thriftiest, 1e-9),
    ]


def _least_joules(job: SimJob) -> float:
    left = job.deadline - job.arrival
    return min(WATTS[klass] * intervals for klass, intervals in (("gpu", job.on_gpu), ("cpu", job.on_cpu)) if intervals <= left)


def _thrift(outcomes: list[Outcome]) -> list[float]:
    """Joules for each job on time: what is dropped saves no energy."""
    return [o.joules / max(o.on_time, 1e-9) / 120 for o in outcomes]
