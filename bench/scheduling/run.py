"""Share of jobs that are on time: the operator's `schedule()` beside plain policies and the exact clairvoyant optimum."""

import statistics
from itertools import product
from typing import Any

from bench.report import Result, at_least
from bench.scheduling.optimum import on_time_at_best
from bench.scheduling.peers import PEERS
from bench.scheduling.simulate import Ours, Simulation
from bench.scheduling.workload import generate

SEEDS = 12
LOADS = (0.8, 1.0, 1.3)
VARIATIONS = (1.0, 4.0)
ERRORS = (0.3, 0.6)


def run(rounds: int) -> Result:
    """Every policy on every workload; `rounds` is the number of seeds."""
    seeds = range(rounds or SEEDS)
    cells = [_cell(seeds, variation=v, load=load, error=0.0) for v, load in product(VARIATIONS, LOADS)]
    cells += [_cell(seeds, variation=4.0, load=1.0, error=error) for error in ERRORS]
    burst = next(c for c in cells if (c["variation"], c["load"], c["error"]) == (4.0, 1.0, 0.0))
    means = {name: value["mean"] for name, value in burst["onTime"].items()}
    return Result(
        cells,
        [
            at_least("scheduling.optimum", "of the optimum, bursts at load 1.0", means["ours"] / means["optimum"], 0.90),
            at_least("scheduling.fifo-shed", "above FIFO that sheds, bursts at load 1.0", means["ours"] - means["FIFO+shed"], 0.10),
            at_least("scheduling.edf-shed", "above EDF that sheds, bursts at load 1.0", means["ours"] - means["EDF+shed"], 0.0),
        ],
    )


def _cell(seeds: range, *, variation: float, load: float, error: float) -> dict[str, Any]:
    shares: dict[str, list[float]] = {}
    proven = 0
    for seed in seeds:
        jobs = generate(seed, load=load, variation=variation, error=error)
        for peer in PEERS:
            shares.setdefault(peer.name, []).append(Simulation(jobs).run(peer).on_time)
        shares.setdefault("ours", []).append(Simulation(jobs).run(Ours(spread=error)).on_time)
        best, exact = on_time_at_best(jobs)
        shares.setdefault("optimum", []).append(best / len(jobs))
        proven += exact
    return {
        "variation": variation,
        "load": load,
        "error": error,
        "optimaProven": f"{proven} of {len(seeds)}",
        "onTime": {
            name: {"mean": round(statistics.mean(values), 4), "standardError": round(_standard_error(values), 4)}
            for name, values in shares.items()
        },
    }


def _standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
