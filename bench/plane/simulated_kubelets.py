"""`python -m bench.plane.simulated_kubelets KUBECONFIG JOURNAL`: stands in for kubelets and workers, and says that it does.

Every bound pod is patched Running, then Succeeded once the run time that its annotation declares for its node's class is over; our
own pods leave a worker's report. A pod that is deleted ends as drained, with the items that it had come to, and the next attempt
of an InferenceJob goes on from there. One line a pod goes to the journal, with how late the simulated kubelets were.
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

AGENT = "bench-kubelets"
# A bucket of its own: what kubelets ask must not wait for what is measured.
RATE = 1000.0
BURST = 1000
# No pod waits for the patch of another: each kubelet has a connection of its own.
_CONNECTIONS = 512
_PRIORITY = -10
_PROVIDERS = {"gpu": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
_TERMINAL = frozenset({"Succeeded", "Failed"})


class PodRun(msgspec.Struct, frozen=True):
    """What the journal says of one simulated pod. `started` and `ended` are seconds since the epoch, `seconds` what it had to run.

    `late` is how much later than due it was started or ended, by this process's own clock: a process that is too busy shows there.
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
class _SimulatedPod:
    """One pod that runs."""

    manifest: Manifest
    work: Work
    device: str
    resumed: int
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def path(self) -> str:
        meta = self.manifest["metadata"]
        return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"

    @property
    def ours(self) -> bool:
        return LABEL_JOB_UID in self.manifest["metadata"].get("labels", {})

    @property
    def owner(self) -> str:
        meta = self.manifest["metadata"]
        return str(next((ref["uid"] for ref in meta.get("ownerReferences", ())), meta["uid"]))

    @property
    def job(self) -> str:
        """The name of the job, of whichever kind."""
        labels = self.manifest["metadata"].get("labels", {})
        return str(labels.get(LABEL_JOB) or labels.get("batch.kubernetes.io/job-name", ""))

    @property
    def seconds(self) -> float:
        """What is left to run."""
        return self.work.seconds[self.device] * (1 - self.resumed / self.work.items)

    def done_after(self, elapsed: float) -> int:
        """Items that are done, those of earlier attempts with them."""
        return min(self.work.items, self.resumed + int(self.work.items * elapsed / self.work.seconds[self.device]))


class SimulatedKubelets:
    """Run all pods of a cluster."""

    def __init__(self, kube: Client, journal: TextIO) -> None:
        self._kube = kube
        self._journal = journal
        self._pods: dict[str, _SimulatedPod] = {}
        self._done: dict[str, int] = {}

    async def run(self) -> None:
        """Follow the pods for ever."""
        async for kind, manifest in self._kube.follow("/api/v1/pods"):
            self._see(kind, manifest)

    def _see(self, kind: str, manifest: Manifest) -> None:
        uid = manifest["metadata"]["uid"]
        known = self._pods.get(uid)
        if kind == "DELETED" or manifest["metadata"].get("deletionTimestamp"):
            if known is not None:
                known.stop.set()
            return
        node, phase = manifest["spec"].get("nodeName"), manifest.get("status", {}).get("phase")
        text = manifest["metadata"].get("annotations", {}).get(ANNOTATION_WORK)
        if known is not None or not node or phase in _TERMINAL or text is None:
            return
        pod = _SimulatedPod(manifest, msgspec.json.decode(text, type=Work), device=node.rsplit("-", 1)[0], resumed=0)
        pod.resumed = self._done.get(pod.owner, 0) if pod.ours else 0
        self._pods[uid] = pod
        pod.task = asyncio.create_task(self._run_pod(uid, pod, time.time()))

    async def _run_pod(self, uid: str, pod: _SimulatedPod, seen: float) -> None:
        started = time.time()
        await self._patch(pod, _running(started))
        outcome, due = "Succeeded", max(started + pod.seconds, time.time())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(pod.stop.wait(), due - time.time())
            outcome = "Drained"
        ended = time.time()
        completed = pod.work.items if outcome == "Succeeded" else pod.done_after(ended - started)
        if pod.ours:
            self._done[pod.owner] = completed
        await self._patch(pod, _ended(pod, outcome, completed, started, ended))
        if outcome == "Drained":
            with contextlib.suppress(OperatorError):
                await self._kube.remove(pod.path, grace_seconds=0)
        name = pod.manifest["metadata"]["name"]
        late = max(started - seen, ended - due if outcome == "Succeeded" else 0.0)
        run = PodRun(name, pod.job, pod.device, pod.seconds, started, ended, late, outcome)
        self._journal.write(msgspec.json.encode(run).decode() + "\n")
        self._journal.flush()
        # Known until the end, so that the events of its own end don't start it again.
        self._pods[uid] = pod

    async def _patch(self, pod: _SimulatedPod, status: Manifest) -> None:
        body = {"metadata": {"uid": pod.manifest["metadata"]["uid"]}, "status": status}
        with contextlib.suppress(NotFoundError):
            await self._kube.merge(f"{pod.path}/status", body)


def _running(started: float) -> Manifest:
    return {"phase": "Running", "conditions": _conditions(ready=True), "containerStatuses": [_container(started)]}


def _ended(pod: _SimulatedPod, outcome: str, completed: int, started: float, ended: float) -> Manifest:
    succeeded = outcome == "Succeeded"
    terminated = {
        "exitCode": 0 if succeeded else 143,
        "startedAt": _stamp(started),
        "finishedAt": _stamp(ended),
        **({"message": _report(pod, succeeded=succeeded, completed=completed)} if pod.ours else {}),
    }
    return {
        "phase": "Succeeded" if succeeded else "Failed",
        "conditions": _conditions(ready=False),
        "containerStatuses": [{**_container(started), "ready": False, "started": False, "state": {"terminated": terminated}}],
    }


def _report(pod: _SimulatedPod, *, succeeded: bool, completed: int) -> str:
    facts = ModelFacts(
        digest=DIGEST,
        provider=_PROVIDERS[pod.device],
        load_seconds=0.0,
        warmup_seconds=0.0,
        batch_size=1,
        memory_bytes=0,
        items_per_second=pod.work.items / pod.work.seconds[pod.device],
    )
    report = TerminationReport(
        outcome="Succeeded" if succeeded else "Drained",
        message=f"{completed} of {pod.work.items} items, simulated",
        model=facts,
        progress=Progress(total=pod.work.items, completed=completed, resumed=pod.resumed),
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


def read_journal(journal: Path) -> list[PodRun]:
    """The runs that a journal holds."""
    return [msgspec.json.decode(line, type=PodRun) for line in journal.read_bytes().splitlines()]


@contextmanager
def simulated_kubelets(kubeconfig: Path, journal: Path) -> Iterator[int]:
    """Run them in a process of their own; its pid."""
    process = subprocess.Popen([sys.executable, "-m", "bench.plane.simulated_kubelets", str(kubeconfig), str(journal)], cwd=ROOT)
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def main() -> int:
    """Run pods until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m bench.plane.simulated_kubelets", description=__doc__)
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("journal", type=Path)
    arguments = parser.parse_args()
    # Kubelets have cores of their own; without this their stand-in would be what is measured on a busy machine.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    asyncio.run(_main(arguments.kubeconfig, arguments.journal))
    return 0


async def _main(kubeconfig: Path, journal: Path) -> None:
    async with client(kubeconfig, agent=AGENT, rate=RATE, burst=BURST, connections=_CONNECTIONS) as kube:
        with journal.open("a") as file:
            await SimulatedKubelets(kube, file).run()


if __name__ == "__main__":
    sys.exit(main())
