"""The same services, loads and HPA, scaled once by the recommendation and once by the plain p95; simulated."""

from typing import Any

from bench.report import Result, Target, at_most
from tests.simulation.queueing import Moment, Service, Signal, reversals, share_over
from tests.simulation.test_autoscaling import SERVICES, STEP

_SECONDS = 600.0
_SEEDS = range(1, 6)


def run(rounds: int) -> Result:
    """Every service with both signals and each seed."""
    found = [
        _round(name, period, signal=signal, seeds=rounds or len(_SEEDS))
        for name in SERVICES
        for period in (5.0, 15.0)
        for signal in (Signal.RECOMMENDED, Signal.P95)
    ]
    ours, plain = ([r for r in found if r["signal"] == signal] for signal in ("RECOMMENDED", "P95"))
    return Result(found, [*_targets(ours), _against(ours, plain)])


def _targets(ours: list[dict[str, Any]]) -> list[Target]:
    return [
        at_most("reversals", "reversals in ten minutes after a step, at most", max(r["reversals"] for r in ours), 1),
        at_most("over-target", "share of the time over the target, mean", _mean(ours, "overTarget"), 0.1),
    ]


def _against(ours: list[dict[str, Any]], plain: list[dict[str, Any]]) -> Target:
    return at_most(
        "workers", "worker-seconds, ours over those of the plain p95", _mean(ours, "workers") / _mean(plain, "workers"), 1
    )


def _mean(found: list[dict[str, Any]], key: str) -> float:
    return float(sum(r[key] for r in found) / len(found))


def _round(name: str, period: float, *, signal: Signal, seeds: int) -> dict[str, Any]:
    rate, service, target = SERVICES[name]
    runs = [
        Service(rate, service, target, seed=seed, hpa_seconds=period, signal=signal).run(STEP + _SECONDS)
        for seed in range(1, seeds + 1)
    ]
    return {
        "service": name,
        "periodSeconds": period,
        "signal": signal.name,
        "reversals": max(reversals(moments, since=STEP) for moments in runs),
        "overTarget": round(sum(share_over(moments, target, since=STEP) for moments in runs) / len(runs), 3),
        "mostReplicas": max(m.asked for moments in runs for m in moments),
        "workers": round(sum(_workers(moments) for moments in runs) / len(runs)),
    }


def _workers(moments: list[Moment]) -> int:
    """Worker-seconds after the step."""
    return sum(m.ready for m in moments if m.time >= STEP)
