"""The picture: what callers met, how many workers there were, and what was asked of them, over time."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

_BLUE, _ORANGE, _GREY = "#3b6fb6", "#d9822b", "#8a8f98"
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    # Equal data make equal files.
    "svg.hashsalt": "autoscaling",
}


def draw(result: dict[str, Any], path: Path) -> None:
    """Write an SVG file."""
    with mpl.rc_context(_STYLE):
        figure, (latency, workers, load) = plt.subplots(3, 1, sharex=True, figsize=(8, 5.2), height_ratios=(2.2, 1.4, 1))
        _latency(latency, result)
        _workers(workers, result)
        _load(load, result)
        figure.align_ylabels()
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(figure)


def _latency(axes: Any, result: dict[str, Any]) -> None:
    callers = result["callers"]
    axes.semilogy([at for at, _, _ in callers], [p95 for _, p95, _ in callers], color=_BLUE, label="p95 of the callers, 2 s")
    told = [(m["time"], m["p95"]) for m in result["moments"] if m["p95"]]
    axes.semilogy([t for t, _ in told], [p for _, p in told], color=_BLUE, alpha=0.35, label="inference_latency_ms, 15 s")
    axes.axhline(result["targetMilliseconds"], color=_ORANGE, linestyle="--", linewidth=1, label="target")
    axes.set_ylabel("latency, ms")
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def _workers(axes: Any, result: dict[str, Any]) -> None:
    moments = result["moments"]
    times = [m["time"] for m in moments]
    axes.step(times, [m["asked"] for m in moments], where="post", color=_ORANGE, label="spec.replicas (the HPA)")
    axes.step(times, [m["ready"] for m in moments], where="post", color=_BLUE, label="ready workers")
    axes.set_ylabel("workers")
    axes.set_ylim(0, max(m["asked"] for m in moments) + 1)
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def _load(axes: Any, result: dict[str, Any]) -> None:
    begin, times, rates = 0.0, [], []
    for until, rate in result["rates"]:
        times += [begin, until]
        rates += [rate, rate]
        begin = until
    axes.plot(times, rates, color=_GREY)
    axes.set_ylim(0, max(rates) * 1.2)
    axes.set_ylabel("requests/s")
    axes.set_xlabel(f"seconds; the HPA looks every {result['periodSeconds']} s")
