"""A namespace with the models on the local cluster, and a service in it that is called and looked at second by second."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.autoscaling.load import Plan
from bench.autoscaling.watch import Api, Machine, Moment, Start, look, starts
from examples.demo import steps
from examples.demo.cluster import ROOT, Kubectl, build_images, copy_tree, install, local
from examples.models.index import build_all
from examples.models.magika_features import default_trees

_BUILT = ROOT / "build" / "examples"


def build() -> None:
    """The example models."""
    build_all(_BUILT, default_trees())


@contextmanager
def space(*, hpa_seconds: int, scale_down_seconds: int) -> Iterator[Kubectl]:
    """Bring the cluster to the HPA's period, install the operator, make a namespace; it goes again."""
    subprocess.run([sys.executable, "-m", "dev.cluster", "up", "--hpa-sync-period", f"{hpa_seconds}s"], cwd=ROOT, check=True)
    kube = local()
    install(kube, build_images(), settings=(f"autoscaling.scaleDownSeconds={scale_down_seconds}",))
    name = f"bench-{uuid.uuid4().hex[:6]}"
    inside = replace(kube, namespace=name)
    inside.create_namespace()
    try:
        copy_tree(_BUILT, inside.volume("data"))
        models = list(steps.pinned_models(_BUILT))
        for model in models:
            model["metadata"]["namespace"] = name
        inside.apply(*models)
        yield inside
    finally:
        inside.delete("namespace", name, "--wait=false")


@dataclass(slots=True)
class Watched:
    """What was seen while the callers called, from `begun` (time.time())."""

    begun: float
    moments: list[Moment] = field(default_factory=list)
    starts: dict[str, Start] = field(default_factory=dict)

    def told_moments(self) -> list[dict[str, Any]]:
        """For the result: seconds since the begin."""
        return [{**asdict(m), "time": round(m.time - self.begun, 1)} for m in self.moments]

    def told_starts(self) -> list[dict[str, Any]]:
        """For the result."""
        return [{**asdict(start), "made": round(start.made - self.begun, 1)} for start in self.starts.values()]


def call(kube: Kubectl, name: str, wanted: Plan, folder: Path) -> Watched:
    """Call the service as planned, from a process of its own, and look each second."""
    wanted.save(folder / "plan.json")
    seen, machine, api = Watched(time.time()), Machine(), Api(kube)
    callers = subprocess.Popen([sys.executable, "-m", "bench.autoscaling.load", str(folder / "plan.json")], cwd=ROOT)
    try:
        while callers.poll() is None:
            due = seen.begun + len(seen.moments) + 1
            seen.moments.append(look(api, name, machine))
            if len(seen.moments) % 10 == 0:
                seen.starts |= {start.pod: start for start in starts(kube, name)}
            time.sleep(max(0.0, due - time.time()))
    finally:
        callers.kill()
        callers.wait()
    return seen
