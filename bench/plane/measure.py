"""What is measured around a load: CPU and memory of every process, writes, and how late the player was."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import proc
from bench.plane.audit import Request, by_name, events, writes
from bench.plane.figures import quantile
from bench.plane.player import AGENT, Life

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


@dataclass(frozen=True, slots=True)
class Lag:
    """How late the player was, in seconds: from bind to Running, and from the run's end to Succeeded."""

    p50: float
    p99: float

    @property
    def void(self) -> bool:
        """Whether the run says something about the player instead of the control plane."""
        return self.p99 > LAG_BOUND_SECONDS

    def as_record(self) -> dict[str, Any]:
        """For the result."""
        return {"lagP50Ms": round(self.p50 * 1e3, 1), "lagP99Ms": round(self.p99 * 1e3, 1), "void": self.void}


def lag(requests: Iterable[Request], lives: Iterable[Life]) -> Lag:
    """Read the player's lateness from the API server's clock. Raises ValueError when nothing was played."""
    requests = list(requests)
    bound = by_name(requests, "create", "pods/binding")
    mine = [r for r in requests if r.actor == AGENT]
    first = by_name(mine, "patch", "pods/status")
    last = by_name(mine, "patch", "pods/status", last=True)
    late = [first[name].received - bind.answered for name, bind in bound.items() if name in first]
    late += [
        last[life.pod].received - first[life.pod].received - life.seconds
        for life in lives
        if life.outcome == "Succeeded" and life.pod in last and last[life.pod] is not first[life.pod]
    ]
    return Lag(max(0.0, quantile(late, 0.5)), quantile(late, 0.99))


def read_tail(path: Path, size: int = 2000) -> str:
    """The end of a log."""
    return path.read_text(errors="replace")[-size:]
