"""What is measured around a load: CPU and memory of every process, writes, and how late the simulated kubelets were."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import proc
from bench.plane.audit import Request, by_name, events, writes
from bench.plane.figures import quantile
from bench.plane.simulated_kubelets import AGENT, PodRun

# A run in which the stand-in for the kubelets was later than this is not one about the control plane.
LAG_BOUND_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Meter:
    """CPU seconds of processes at one moment."""

    pids: Mapping[str, int]
    cpu: Mapping[str, float]

    @staticmethod
    def of(pids: Mapping[str, int]) -> "Meter":
        """Read now."""
        return Meter(pids, {name: proc.cpu_seconds(pid) for name, pid in pids.items()})

    def since(self, *, idle: Mapping[str, float], seconds: float) -> dict[str, float]:
        """CPU seconds of each process since then, less what it takes at rest in that time."""
        now = {name: proc.cpu_seconds(pid) for name, pid in self.pids.items()}
        return {name: max(0.0, now[name] - self.cpu[name] - idle.get(name, 0.0) * seconds) for name in now}

    def share(self, seconds: float) -> dict[str, float]:
        """CPU of each process since then as a share of one core."""
        return {name: (proc.cpu_seconds(pid) - self.cpu[name]) / seconds for name, pid in self.pids.items()}


def memory(pids: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """MiB of each process, resident now and at its peak."""
    found = {name: proc.memory_mib(pid) for name, pid in pids.items()}
    return {name: {"residentMib": round(now, 1), "peakMib": round(peak, 1)} for name, (now, peak) in found.items()}


def per_job(requests: Iterable[Request], jobs: int, *, without: Iterable[str] = ()) -> dict[str, Any]:
    """Writes a job: in all, by actor, and in full; the load's own are left out."""
    requests = [r for r in requests if r.actor not in without]
    counted = writes(requests)
    by_actor: Counter[str] = Counter()
    for (actor, _, _), count in counted.items():
        by_actor[actor] += count
    return {
        "writesPerJob": round(sum(counted.values()) / jobs, 3),
        "eventsPerJob": round(events(requests) / jobs, 3),
        "writesPerJobByActor": {actor: round(count / jobs, 3) for actor, count in by_actor.most_common()},
        "writes": {" ".join(key): count for key, count in counted.most_common()},
    }


def lag(requests: Iterable[Request], pod_runs: Iterable[PodRun]) -> dict[str, Any]:
    """How late the simulated kubelets were by their own clock, whether that voids the run, and how long bind to Running took.

    The latter has the API server's part in it (a watch to be told, a patch to be taken), which a kubelet would wait for, too.
    Raises ValueError when no pod ran.
    """
    requests = list(requests)
    bound = by_name(requests, "create", "pods/binding")
    first = by_name((r for r in requests if r.actor == AGENT), "patch", "pods/status")
    running = [first[name].received - bind.answered for name, bind in bound.items() if name in first]
    late = [run.late for run in pod_runs]
    p99 = quantile(late, 0.99)
    return {
        "lagP50Ms": round(quantile(late, 0.5) * 1e3, 1),
        "lagP99Ms": round(p99 * 1e3, 1),
        "void": p99 > LAG_BOUND_SECONDS,
        "bindToRunningP50Ms": round(quantile(running, 0.5) * 1e3, 1),
        "bindToRunningP99Ms": round(quantile(running, 0.99) * 1e3, 1),
    }


def read_tail(path: Path, size: int = 2000) -> str:
    """The end of a log."""
    return path.read_text(errors="replace")[-size:]
