"""Two devices of one host, a worker on each, over one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.gpu import serving
from bench.gpu.served import Stream, Worker, load, worker
from bench.report import ROOT

VISIBLE = "CUDA_VISIBLE_DEVICES"


def measure(net: Path, rate: float, source: Path = ROOT) -> dict[str, Any]:
    """The most images a second from callers that wait: of each alone by turns, and of both at once."""
    with (
        worker(net, source=source, variables={VISIBLE: "0"}) as first,
        worker(net, source=source, variables={VISIBLE: "1"}) as second,
    ):
        both = (first, second)
        for each in both:
            load(each, [Stream(500)], 2.0)
        rounds = [_round(both, rate) for _ in range(3)]
    ratios = sorted(together / alone for alone, together in rounds)
    return {"rounds": rounds, "overOne": round(ratios[1], 3), "spread": [round(ratios[0], 3), round(ratios[-1], 3)]}


def _round(both: tuple[Worker, Worker], rate: float) -> tuple[float, float]:
    alone = sum(_most(each, rate) for each in both) / 2
    with ThreadPoolExecutor(len(both)) as threads:
        together = sum(threads.map(lambda each: _most(each, rate), both))
    return alone, together


def _most(on: Worker, rate: float) -> float:
    return float(serving.most(on, rate).summary()["imagesPerSecond"])
