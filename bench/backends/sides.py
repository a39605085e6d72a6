"""The worker with each of its back ends, as sides of the worker's benchmark: what runs beside a worker counts as the worker's."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.report import ROOT
from bench.worker.launch import start_ours
from bench.worker.processes import SERVER_CORE, Started, started
from bench.worker.sides import Plan, Side, free_ports
from dev.tritonserver import ensure_tritonserver
from examples.demo.cluster import load

BUILT = ROOT / "build" / "examples"
_MODELS = "11-models-torchscript.yaml"
_PROTOCOLS = frozenset({"json", "binary"})


@dataclass(frozen=True, slots=True)
class Pair(Started):
    """A worker and the tritonserver beside it, as one."""

    beside: Started

    def tree(self) -> list[int]:
        """Both processes and their descendants."""
        # Not super(): the decorator makes another class where there are slots.
        return Started.tree(self) + self.beside.tree()


@contextmanager
def _start_triton(plan: Plan) -> Iterator[Started]:
    server = ensure_tritonserver()
    repository = plan.folder / "triton"
    repository.mkdir()
    (port,) = free_ports(1)
    prefix = f"bench_backends_{os.getpid()}_{port}_"
    beside = {"backend": "triton", "triton": {"platform": "python", "repository": str(repository), "port": port}}
    command = server.command(repository, port, shared_memory_prefix=prefix)
    log = plan.folder / "triton-log"
    try:
        with (
            started(command, log=log, core=SERVER_CORE, environment=server.environment, folder=plan.folder) as running,
            start_ours(replace(plan, extra={**plan.extra, **beside})) as worker,
        ):
            # Seconds to ready count from the start of the first of the two, as a pod's do.
            yield Pair(worker.process, worker.log, running.begun, running)
    finally:
        for region in Path("/dev/shm").glob(f"{prefix}*"):
            region.unlink(missing_ok=True)


@contextmanager
def _start_torchscript(plan: Plan) -> Iterator[Started]:
    name = plan.model.name
    version = next(model["spec"]["versions"][0] for model in load(_MODELS) if model["metadata"]["name"] == f"{name}-torchscript")
    source = {
        "name": name,
        "version": "1",
        "uri": "pvc://data/model.onnx",
        "format": "torchscript",
        "signature": version["signature"],
    }
    scripted = replace(plan.model, path=plan.model.path.with_name("model.pt"))
    with start_ours(replace(plan, model=scripted, extra={**plan.extra, "backend": "torchscript", "model": source})) as worker:
        yield worker


def sides() -> tuple[tuple[Side, ...], dict[str, str]]:
    """What can run here, and why the rest can't."""
    found = [
        Side("onnx", start_ours, _PROTOCOLS, "/v2/health/ready", deadlines="header"),
        Side("triton", _start_triton, _PROTOCOLS, "/v2/health/ready", deadlines="header"),
    ]
    if importlib.util.find_spec("torch") is None:
        return tuple(found), {"torchscript": "this environment has no PyTorch: run it with INFERENCE_ENGINES=all"}
    # Not in this process: PyTorch's threads and the forks of a benchmark don't go together.
    subprocess.run([sys.executable, "-m", "examples.torchscript", str(BUILT)], cwd=ROOT, check=True)
    return (*found, Side("torchscript", _start_torchscript, _PROTOCOLS, "/v2/health/ready", deadlines="header")), {}
