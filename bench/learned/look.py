"""`python -m bench.learned.look FILE`: what a look of the shadow policy takes, on made-up fleets of three sizes."""

import sys
import time
from pathlib import Path
from statistics import median

from inference_operator.observability import metrics
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Fleet
from inference_operator.settings import CostWeights
from inference_operator.shadow.controller import Shadow
from inference_operator.shadow.policy import load_policy
from tests.builders import NOW, a_node, a_request, an_option, somebodys_pod

_SIZES = ((10, 100, 64), (100, 1000, 1000), (1000, 10_000, 10_000))
_LOOKS = 30
_OPTIONS = (an_option("gpu", seconds=12, gpu=1), an_option("cpu", seconds=40))


def main(path: Path) -> None:
    """Print a line for each size."""
    before = _memory_mib()
    policy = load_policy(path)
    print(f"ONNX Runtime and the policy: {_memory_mib() - before:.0f} MiB")
    for nodes, pods, requests in _SIZES:
        fleet = Fleet(
            tuple(a_node(f"n{number}", cpu="16", gpu=number % 2) for number in range(nodes)),
            tuple(somebodys_pod(f"p{number}", node=f"n{number % nodes}", cpu="1") for number in range(pods)),
            tuple(a_request(f"j{number}", *_OPTIONS, deadline_in=100 + number) for number in range(requests)),
        )
        answers = schedule(fleet, CostWeights(), NOW)
        whole: list[float] = []
        own: list[float] = []
        for _ in range(_LOOKS):
            counted, began = metrics.policy_seconds._sum.get(), time.perf_counter()  # noqa: SLF001 -- prometheus_client has no getter
            Shadow(policy, lambda do: do()).watch(fleet, answers, NOW)
            whole.append(time.perf_counter() - began)
            own.append(metrics.policy_seconds._sum.get() - counted)  # noqa: SLF001
        began = time.perf_counter()
        dict(answers)
        copying = time.perf_counter() - began
        print(
            f"{nodes} nodes, {requests} jobs: a look {median(whole) * 1e3:.1f} ms, of which the policy {median(own) * 1e3:.2f} "
            f"(worst {max(own) * 1e3:.2f}); a pass is kept {copying * 1e3:.2f} ms"
        )


def _memory_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


if __name__ == "__main__":
    main(Path(sys.argv[1]))
