"""A stand-in for Cluster Autoscaler and Karpenter: a node for Pending pods that fit none, and its end once it is empty."""

import asyncio
from dataclasses import dataclass, field

from tests.simulation.api import At, Raw, SimulatedApi
from tests.simulation.trace import Trace, pinned_to

LOOK_SECONDS = 1.0


@dataclass
class SimulatedAutoscaler:
    """Adds GPU nodes, at most so many, which take so many seconds to come and go when they have been empty for a while."""

    api: SimulatedApi
    trace: Trace
    seconds: float = 95.0
    most: int = 10
    gpus: int = 1
    idle_seconds: float = 30.0
    _made: int = 0
    _coming: int = 0
    _idle: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """Look again and again."""
        self._look()
        asyncio.get_running_loop().call_later(LOOK_SECONDS, self.start)

    def _look(self) -> None:
        pods = [raw for raw in self.api.all("pods").values() if raw["status"].get("phase") not in ("Succeeded", "Failed")]
        nodes = {at.name for at in self.api.all("nodes") if at.name.startswith("grown-")}
        # What names its node needs no other one.
        waiting = [raw for raw in pods if not raw["spec"].get("nodeName") and pinned_to(raw) is None]
        used = {raw["spec"].get("nodeName") or pinned_to(raw) for raw in pods}
        short = -(-len(waiting) // self.gpus) - self._coming - len(nodes - used)
        for _ in range(min(short, self.most - len(nodes) - self._coming)):
            self._made += 1
            self._coming += 1
            asyncio.get_running_loop().call_later(self.seconds, self._add, f"grown-{self._made}")
        self._shrink(nodes, used)

    def _add(self, name: str) -> None:
        self._coming -= 1
        allocatable = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(self.gpus)}
        raw: Raw = {
            "metadata": {"name": name},
            "spec": {},
            "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.trace.say("autoscaler", f"adds {name}")
        self.api.put(At("nodes", "", name), raw)

    def _shrink(self, nodes: set[str], used: set[str | None]) -> None:
        now = asyncio.get_running_loop().time()
        for name in nodes:
            since = now if name in used else self._idle.get(name, now)
            self._idle[name] = since
            if now - since >= self.idle_seconds:
                self.trace.say("autoscaler", f"removes {name}")
                self.api.remove(At("nodes", "", name))
