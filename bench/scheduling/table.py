"""Share of jobs on time: the operator's `schedule()` beside plain policies and the exact clairvoyant optimum."""

import statistics
from collections.abc import Sequence
from itertools import product
from typing import Any

from bench.report import Target, at_least, at_most
from bench.scheduling import traces
from bench.scheduling.figures import paired, summary
from bench.scheduling.optimum import on_time_at_best, on_time_at_most
from bench.scheduling.peers import PEERS
from bench.scheduling.simulate import Ours, Simulation
from bench.scheduling.workload import SimJob, generate

LOADS = (0.8, 1.0, 1.3)
VARIATIONS = (1.0, 4.0)
ERRORS = (0.3, 0.6)
_WINDOW = 120
_LONG_WINDOW = 1000

Shares = dict[str, list[float]]
# What no scenario has to be solved for again: the optimum knows no estimates.
_best: dict[tuple[object, ...], list[tuple[int, bool]]] = {}


def synthetic(seeds: range) -> tuple[list[dict[str, Any]], list[Target]]:
    """Every policy on every workload, exact and with errors in the estimates."""
    scenarios: list[dict[str, Any]] = []
    shares: dict[tuple[float, float, float], Shares] = {}
    settings = [(v, load, 0.0) for v, load in product(VARIATIONS, LOADS)] + [(4.0, 1.0, error) for error in ERRORS]
    for variation, load, error in settings:
        jobs = [generate(seed, load=load, variation=variation, error=error) for seed in seeds]
        scenario, found = _scenario(jobs, error=error, key=("synthetic", variation, load))
        scenarios.append({"arrivals": f"CV {variation:g}", "load": load, "error": error, **scenario})
        shares[variation, load, error] = found
    exact = shares[4.0, 1.0, 0.0]
    targets = _targets(exact)
    for error in ERRORS:
        wrong = shares[4.0, 1.0, error]
        losses = {name: [a - b for a, b in zip(exact[name], wrong[name], strict=True)] for name in exact if name != "optimum"}
        scenarios.append(
            {
                "lostByError": error,
                "lost": {name: summary(values) for name, values in losses.items()},
                "oursLessEdfShed": paired(losses["ours"], losses["EDF+shed"]),
                "oursLessEdfShedStop": paired(losses["ours"], losses["EDF+shed+stop"]),
            }
        )
        lost = statistics.mean(losses["ours"]) - statistics.mean(losses["EDF+shed"])
        targets.append(at_most(f"scheduling.error-{error:g}", f"lost more than EDF+shed by errors of sigma {error:g}", lost, 0.0))
    return scenarios, targets


def _targets(burst: Shares) -> list[Target]:
    means = {name: statistics.mean(values) for name, values in burst.items()}
    ours = means["ours"]
    return [
        at_least("scheduling.optimum", "of the optimum, bursts at load 1.0", ours / means["optimum"], 0.90),
        at_least("scheduling.optimum-aim", "the same, what we aim at", ours / means["optimum"], 0.93),
        at_least("scheduling.fifo-shed", "above FIFO that sheds, bursts at load 1.0", ours - means["FIFO+shed"], 0.10),
        at_least("scheduling.edf-shed", "above EDF that sheds, bursts at load 1.0", ours - means["EDF+shed"], 0.0),
    ]


def real(windows: int) -> tuple[list[dict[str, Any]], list[Target]]:
    """The same on real arrivals, with the optimum for short windows and a bound on it for a long one."""
    scenarios: list[dict[str, Any]] = []
    for trace in traces.TRACES:
        for load, error in [*((load, 0.0) for load in LOADS), (1.0, 0.6)]:
            jobs = list(traces.windows(trace, size=_WINDOW, load=load, error=error))[: windows or None]
            scenario, _ = _scenario(jobs, error=error, key=(trace, load))
            scenarios.append({"arrivals": trace, "jobs": _WINDOW, "load": load, "error": error, **scenario})
        jobs = list(traces.windows(trace, size=_LONG_WINDOW, load=1.0))
        shares = _shares(jobs, error=0.0)
        shares["optimum, at most"] = [on_time_at_most(window) / len(window) for window in jobs]
        scenarios.append({"arrivals": trace, "jobs": _LONG_WINDOW, "load": 1.0, "error": 0.0, "onTime": _summaries(shares)})
    return scenarios, []


def _scenario(jobs: Sequence[list[SimJob]], *, error: float, key: tuple[object, ...]) -> tuple[dict[str, Any], Shares]:
    shares = _shares(jobs, error=error)
    best = _best[key] = _best.get(key) or [on_time_at_best(one) for one in jobs]
    shares["optimum"] = [most / len(one) for (most, _), one in zip(best, jobs, strict=True)]
    scenario = {
        "optimaProven": f"{sum(proven for _, proven in best)} of {len(best)}",
        "onTime": _summaries(shares),
        "oursLessEdfShed": paired(shares["ours"], shares["EDF+shed"]),
        "oursLessEdfShedStop": paired(shares["ours"], shares["EDF+shed+stop"]),
    }
    return scenario, shares


def _shares(jobs: Sequence[list[SimJob]], *, error: float) -> Shares:
    shares = {peer.name: [Simulation(one).run(peer).on_time for one in jobs] for peer in PEERS}
    shares["ours"] = [Simulation(one).run(Ours(spread=error)).on_time for one in jobs]
    return shares


def _summaries(shares: Shares) -> dict[str, dict[str, float]]:
    return {name: summary(values) for name, values in shares.items()}
