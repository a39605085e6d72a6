"""Plays scheduler, kubelet and worker: moves created pods through Pending, Running and their end with a report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from inference_protocol.messages import Latency, ModelFacts, Progress, TerminationReport, encode_report
from inference_protocol.reasons import WorkerReason
from tests.component.objects import DIGEST, reason
from tests.component.operators import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.component.api_server import ApiServer
    from tests.component.kinds import Raw

_FACTS = ModelFacts(
    digest=DIGEST,
    provider="CPUExecutionProvider",
    load_seconds=0.2,
    warmup_seconds=0.1,
    batch_size=1,
    memory_bytes=1 << 26,
    items_per_second=100.0,
)
SUCCESS = TerminationReport(
    outcome="Succeeded",
    message="2 items",
    model=_FACTS,
    progress=Progress(total=2, completed=2),
    latency=Latency(p50=1.0, p95=2.0, p99=3.0, count=2),
    output='{"y": 1}\n{"y": 2}',
)
FAILURE = TerminationReport(outcome="Failed", message="the volume went away", reason=WorkerReason.MODEL_UNREACHABLE)


class Kubelet:
    """Acts on pods when told to; `plan` lets it play every attempt by itself."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        # Every worker pod that ever was: (job's uid, attempt, name).
        self.seen: list[tuple[str, str, str]] = []
        server.on_created.append(self._see)

    def _see(self, obj: Raw) -> None:
        labels = obj["metadata"].get("labels", {})
        if obj["kind"] == "Pod" and "inference.myorg/job-uid" in labels:
            self.seen.append(
                (labels["inference.myorg/job-uid"], labels["inference.myorg/attempt"], obj["metadata"]["name"]),
            )

    def pods_of(self, job: str) -> list[Raw]:
        """A job's worker pods, oldest attempt first."""
        found = [p for p in self._server.all("pods") if p["metadata"].get("labels", {}).get("inference.myorg/job") == job]
        return sorted(found, key=_number)

    def run(self, pod: Raw, *, ready: bool = True, address: str | None = None) -> None:
        """Bound, started, and (if it is) ready."""
        state = {"running": {"startedAt": now()}}

        def change(obj: Raw) -> None:
            obj["spec"]["nodeName"] = node_of(obj)
            obj["status"] = {
                "phase": "Running",
                "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": str(ready)}],
                "containerStatuses": [{"name": "worker", "state": state}],
                **({"podIP": address} if address else {}),
            }

        self._change(pod, change)

    def end(self, pod: Raw, report: TerminationReport = SUCCESS) -> None:
        """The worker ends with its last words."""
        code = 0 if report.outcome == "Succeeded" else 1
        ended = {"exitCode": code, "startedAt": now(), "finishedAt": now(), "message": encode_report(report).decode()}

        def change(obj: Raw) -> None:
            obj["spec"]["nodeName"] = node_of(obj)
            obj["status"] = {
                "phase": "Succeeded" if code == 0 else "Failed",
                "containerStatuses": [{"name": "worker", "state": {"terminated": ended}}],
            }

        self._change(pod, change)

    def die(self, pod: Raw) -> None:
        """Gone from the node and from the API."""
        self._server.delete("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])

    async def play(self, job: str, *reports: TerminationReport, patient: bool = True, namespace: str = "default") -> None:
        """One attempt after the other; a patient kubelet lets the operator say each thing before the next happens."""
        for number, report in enumerate(reports or (SUCCESS,), 1):
            pod = await self.worker(job, number)
            if patient:
                await until(lambda: reason(self._server.get("inferencejobs", job, namespace)) == "Starting", f"{job} starts")
            self.run(pod)
            if patient:
                await until(lambda: reason(self._server.get("inferencejobs", job, namespace)) == "Running", f"{job} runs")
            self.end(pod, report)

    async def worker(self, job: str, number: int = 1) -> Raw:
        """The pod of an attempt, once it is there."""
        found = await until(lambda: [p for p in self.pods_of(job) if _number(p) == number], f"worker {number} of {job}")
        return found[0]

    def _change(self, pod: Raw, change: Callable[[Raw], None]) -> None:
        meta = pod["metadata"]
        self._server.update("pods", meta["name"], change, meta["namespace"])


def node_of(pod: Raw) -> str:
    """Where the operator wants the pod."""
    rule = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return rule["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]


def _number(pod: Raw) -> int:
    return int(pod["metadata"]["labels"]["inference.myorg/attempt"])


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
