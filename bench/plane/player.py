"""`python -m bench.plane.player KUBECONFIG JOURNAL`: stands in for kubelets and workers. It is a simulation, and says so.

Every bound pod is patched Running, then Succeeded once the run time that its annotation declares for its node's class is over; our
own pods leave a worker's report. A pod that is deleted ends as drained, with the items that it had come to, and the next attempt
of an InferenceJob goes on from there. One line a pod goes to the journal, with how late the player itself was.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import msgspec

from bench.plane.kube import Client, client
from bench.plane.objects import ANNOTATION_WORK, DIGEST, Manifest, Work
from bench.report import ROOT
from inference_operator.api.names import LABEL_JOB, LABEL_JOB_UID
from inference_operator.errors import NotFoundError, OperatorError
from inference_protocol.messages import ModelFacts, Progress, TerminationReport, encode_report

AGENT = "bench-player"
# A bucket of its own: what kubelets ask must not wait for what is measured.
RATE = 1000.0
BURST = 1000
# No pod waits for the patch of another: each kubelet has a connection of its own.
_CONNECTIONS = 512
_PRIORITY = -10
_PROVIDERS = {"gpu": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
_TERMINAL = frozenset({"Succeeded", "Failed"})


class Life(msgspec.Struct, frozen=True):
    """What the journal says of one pod. `started` and `ended` are seconds since the epoch, `seconds` what it had to run.

    `late` is how much later than due it was started or ended, by the player's own clock: a player that is too busy shows there.
    """

    pod: str
    job: str
    device: str
    seconds: float
    started: float
    ended: float
    late: float
    outcome: str


@dataclass(slots=True)
class _Run:
    """One pod being played."""

    pod: Manifest
    work: Work
    device: str
    resumed: int
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def path(self) -> str:
        meta = self.pod["metadata"]
        return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"

    @property
    def ours(self) -> bool:
        return LABEL_JOB_UID in self.pod["metadata"].get("labels", {})

    @property
    def owner(self) -> str:
        meta = self.pod["metadata"]
        return str(next((ref["uid"] for ref in meta.get("ownerReferences", ())), meta["uid"]))

    @property
    def job(self) -> str:
        """The name of the job, of whichever kind."""
        labels = self.pod["metadata"].get("labels", {})
        return str(labels.get(LABEL_JOB) or labels.get("batch.kubernetes.io/job-name", ""))

    @property
    def seconds(self) -> float:
        """What is left to run."""
        return self.work.seconds[self.device] * (1 - self.resumed / self.work.items)

    def done_after(self, elapsed: float) -> int:
        """Items that are done, those of earlier attempts with them."""
        return min(self.work.items, self.resumed + int(self.work.items * elapsed / self.work.seconds[self.device]))


class Player:
    """Plays all pods of a cluster."""

    def __init__(self, kube: Client, journal: TextIO) -> None:
        self._kube = kube
        self._journal = journal
        self._runs: dict[str, _Run] = {}
        self._done: dict[str, int] = {}

    async def play(self) -> None:
        """Follow the pods for ever."""
        async for kind, pod in self._kube.follow("/api/v1/pods"):
            self._see(kind, pod)

    def _see(self, kind: str, pod: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        known = self._runs.get(uid)
        if kind == "DELETED" or pod["metadata"].get("deletionTimestamp"):
            if known is not None:
                known.stop.set()
            return
        node, phase = pod["spec"].get("nodeName"), pod.get("status", {}).get("phase")
        text = pod["metadata"].get("annotations", {}).get(ANNOTATION_WORK)
        if known is not None or not node or phase in _TERMINAL or text is None:
            return
        run = _Run(pod, msgspec.json.decode(text, type=Work), device=node.rsplit("-", 1)[0], resumed=0)
        run.resumed = self._done.get(run.owner, 0) if run.ours else 0
        self._runs[uid] = run
        run.task = asyncio.create_task(self._live(uid, run, time.time()))

    async def _live(self, uid: str, run: _Run, seen: float) -> None:
        started = time.time()
        await self._patch(run, _running(started))
        outcome, due = "Succeeded", max(started + run.seconds, time.time())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(run.stop.wait(), due - time.time())
            outcome = "Drained"
        ended = time.time()
        completed = run.work.items if outcome == "Succeeded" else run.done_after(ended - started)
        if run.ours:
            self._done[run.owner] = completed
        await self._patch(run, _ended(run, outcome, completed, started, ended))
        if outcome == "Drained":
            with contextlib.suppress(OperatorError):
                await self._kube.remove(run.path, grace_seconds=0)
        name = run.pod["metadata"]["name"]
        late = max(started - seen, ended - due if outcome == "Succeeded" else 0.0)
        life = Life(name, run.job, run.device, run.seconds, started, ended, late, outcome)
        self._journal.write(msgspec.json.encode(life).decode() + "\n")
        self._journal.flush()
        # Known until the end, so that the events of its own end don't start it again.
        self._runs[uid] = run

    async def _patch(self, run: _Run, status: Manifest) -> None:
        body = {"metadata": {"uid": run.pod["metadata"]["uid"]}, "status": status}
        with contextlib.suppress(NotFoundError):
            await self._kube.merge(f"{run.path}/status", body)


def _running(started: float) -> Manifest:
    return {"phase": "Running", "conditions": _conditions(ready=True), "containerStatuses": [_container(started)]}


def _ended(run: _Run, outcome: str, completed: int, started: float, ended: float) -> Manifest:
    succeeded = outcome == "Succeeded"
    terminated = {
        "exitCode": 0 if succeeded else 143,
        "startedAt": _stamp(started),
        "finishedAt": _stamp(ended),
        **({"message": _report(run, succeeded=succeeded, completed=completed)} if run.ours else {}),
    }
    return {
        "phase": "Succeeded" if succeeded else "Failed",
        "conditions": _conditions(ready=False),
        "containerStatuses": [{**_container(started), "ready": False, "started": False, "state": {"terminated": terminated}}],
    }


def _report(run: _Run, *, succeeded: bool, completed: int) -> str:
    facts = ModelFacts(
        digest=DIGEST,
        provider=_PROVIDERS[run.device],
        load_seconds=0.0,
        warmup_seconds=0.0,
        batch_size=1,
        memory_bytes=0,
        items_per_second=run.work.items / run.work.seconds[run.device],
    )
    report = TerminationReport(
        outcome="Succeeded" if succeeded else "Drained",
        message=f"{completed} of {run.work.items} items, played",
        model=facts,
        progress=Progress(total=run.work.items, completed=completed, resumed=run.resumed),
    )
    return encode_report(report).decode()


def _container(started: float) -> Manifest:
    state = {"running": {"startedAt": _stamp(started)}}
    return {"name": "worker", "image": "none", "imageID": "", "ready": True, "started": True, "restartCount": 0, "state": state}


def _conditions(*, ready: bool) -> list[Manifest]:
    truth = str(ready)
    return [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Initialized", "status": "True"},
        {"type": "ContainersReady", "status": truth},
        {"type": "Ready", "status": truth},
    ]


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def lives(journal: Path) -> list[Life]:
    """Read a journal."""
    return [msgspec.json.decode(line, type=Life) for line in journal.read_bytes().splitlines()]


@contextmanager
def player(kubeconfig: Path, journal: Path) -> Iterator[int]:
    """Run a player; its pid."""
    process = subprocess.Popen([sys.executable, "-m", "bench.plane.player", str(kubeconfig), str(journal)], cwd=ROOT)
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def main() -> int:
    """Play until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m bench.plane.player", description=__doc__)
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("journal", type=Path)
    arguments = parser.parse_args()
    # Kubelets have cores of their own; without this the player would be what is measured on a busy machine.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    asyncio.run(_main(arguments.kubeconfig, arguments.journal))
    return 0


async def _main(kubeconfig: Path, journal: Path) -> None:
    async with client(kubeconfig, agent=AGENT, rate=RATE, burst=BURST, connections=_CONNECTIONS) as kube:
        with journal.open("a") as target:
            await Player(kube, target).play()


if __name__ == "__main__":
    sys.exit(main())
