"""A fresh control plane with nodes and simulated kubelets. Every run of every side has one of its own, and inherits nothing."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.plane import control
from bench.plane.control import Plane, PlaneLimits, control_plane
from bench.plane.furnish import furnish
from bench.plane.kube import Client, client
from bench.plane.objects import BATCH_JOBS, JOBS, Manifest, Room
from bench.plane.simulated_kubelets import PodRun, read_journal, simulated_kubelets
from dev.cluster import ClientLimits
from dev.console import DevError

AGENT = "bench"


@dataclass(frozen=True, slots=True)
class Limits:
    """Client limits of all parties of a run; ours is the operator's, Kueue's its manager's."""

    name: str
    plane: PlaneLimits
    ours: ClientLimits
    kueue: ClientLimits


SHIPPED = Limits("shipped", control.SHIPPED, ClientLimits(200, 400), ClientLimits(50, 100))
LIFTED = Limits("lifted", control.LIFTED, ClientLimits(1000, 1000), ClientLimits(1000, 1000))


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a run takes place."""

    plane: Plane
    kube: Client
    folder: Path
    limits: Limits
    kubelets_pid: int

    def pids(self, **others: int) -> dict[str, int]:
        """All processes that take part."""
        return {**self.plane.pids(), "kubelets": self.kubelets_pid, **others}

    def pod_runs(self) -> list[PodRun]:
        """The journal of the simulated kubelets."""
        return read_journal(self.folder / "journal")

    def operator_settings(self, accelerators: dict[str, Any]) -> dict[str, Any]:
        """The shipped settings but for the limits and the classes."""
        limits = self.limits.ours
        return {"accelerators": accelerators, "requestsPerSecond": limits.rate, "burst": limits.burst}


@asynccontextmanager
async def stage(rooms: Iterable[Room], limits: Limits, crds: Iterable[Manifest] = ()) -> AsyncIterator[Stage]:
    """Set one up, and take it down with everything in it."""
    with (
        control_plane(scheduler=True, limits=limits.plane, crds=crds) as plane,
        tempfile.TemporaryDirectory(prefix="inference-bench-") as name,
    ):
        folder = Path(name)
        journal = folder / "journal"
        journal.touch()
        async with client(plane.kubeconfig, agent=AGENT) as kube:
            await furnish(kube, rooms)
            with simulated_kubelets(plane.kubeconfig, journal) as pid:
                yield Stage(plane, kube, folder, limits, pid)


async def until(probe: Callable[[], Awaitable[bool]], what: str, *, seconds: float, every: float = 0.5) -> None:
    """Wait until it holds. Raises DevError after so many seconds."""
    give_up = time.monotonic() + seconds
    while not await probe():
        if time.monotonic() > give_up:
            raise DevError(f"gave up on {what} after {seconds:.0f} s")
        await asyncio.sleep(every)


async def all_done(kube: Client, path: str, *, seconds: float, selector: str = "") -> list[Manifest]:
    """Wait until every job in a collection has ended one way or the other, and return them.

    Looks are few and ask for one object: each has the API server walk through all of them. Raises DevError after so many seconds.
    """
    field = {JOBS: "status.phase!=Succeeded,status.phase!=Failed", BATCH_JOBS: "status.successful!=1"}[path]
    labels = f"&labelSelector={selector}" if selector else ""

    async def none_left() -> bool:
        return not (await kube.get(f"{path}?fieldSelector={field}&limit=1{labels}"))["items"]

    await until(none_left, f"the end of all {path.rsplit('/', 1)[1]}", seconds=seconds, every=1.0)
    found: list[Manifest] = []

    async def all_said() -> bool:
        found[:] = (await kube.get(f"{path}?{labels}"))["items"]
        return all(map(is_done, found))

    await until(all_said, "the last words on all jobs", seconds=60)
    return found


def is_done(job: Manifest) -> bool:
    """Whether a job of either kind has ended, well or not."""
    return outcome(job) is not None


def outcome(job: Manifest) -> str | None:
    """Succeeded or Failed, by the conditions of either kind; None before the end."""
    for one in job.get("status", {}).get("conditions", ()):
        match one["type"], one["status"]:
            case ("Succeeded" | "Complete", "True"):
                return "Succeeded"
            case ("Succeeded", "False") | ("Failed", "True"):
                return "Failed"
    return None
