"""Operators as processes: started against a scripted API server, waited for by what they do, and always ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.component.api_server import ApiServer
    from tests.component.kinds import Raw

REPOSITORY = Path(__file__).resolve().parents[2]
# Long enough for a busy machine; a test waits this long only when it is about to fail.
PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.02

# Quick where a test would only wait, and patient where a busy machine would lose the Lease; the rest is as users have it.
SETTINGS: dict[str, Any] = {
    "httpPort": 0,
    "leaseSeconds": 15,
    "backoffSeconds": 0.05,
    "schedulingIntervalSeconds": 0.01,
    "telemetrySeconds": 3600,
    "resyncSeconds": 3600,
    "requestsPerSecond": 2000,
    "burst": 2000,
}
# A worker that has no turn on a busy machine is not taken for a dead one, but in tests of that, which have none of these.
PATIENT: dict[str, Any] = {
    f"inference_operator.liveness.detector:LIMITS.{limit}": PATIENCE_SECONDS
    for limit in ("silent_seconds", "node_seconds", "doubted_seconds")
}
WATCHED = (
    "endpointslices",
    "horizontalpodautoscalers",
    "inferencejobs",
    "inferencemodels",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "poddisruptionbudgets",
    "pods",
    "services",
)


async def until(condition: Callable[[], Any], what: str, *, seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait until it holds and return what it gave; the limit is only there so that a broken operator fails a test."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + seconds
    while not (found := condition()):
        if loop.time() > give_up:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        await asyncio.sleep(_POLL_SECONDS)
    return found


async def until_status(says: Callable[[Raw], Any], server: ApiServer, job: str, what: str = "") -> None:
    """Wait until what is asked of a job's object holds."""
    await until(lambda: says(server.get("inferencejobs", job)), what or f"{job}'s status")


class Nursery:
    """The process that forks operators."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.component.nursery"],
            cwd=REPOSITORY,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, order: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=PATIENCE_SECONDS)


def environment() -> dict[str, str]:
    """What an operator process needs of ours, and nothing that points it to another cluster."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KUBERNETES_", "KUBECONFIG", "INFERENCE_"))}
    path = os.pathsep.join(str(REPOSITORY / part) for part in ("operator", "protocol", "."))
    return {**kept, "PYTHONPATH": path}


@dataclass
class Operator:
    """One process. `log` is what it wrote so far."""

    pid: int
    log_file: Path
    poll: Callable[[], int | None]

    @property
    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self.poll()

    def send(self, number: signal.Signals) -> None:
        if self.code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone: nothing of it may write any more."""
        self.send(signal.SIGKILL)
        while self.code is None:
            os.sched_yield()

    async def says(self, text: str) -> None:
        await until(lambda: text in self.log or self.code is not None, f"{text!r} in {self.log_file}")
        assert text in self.log, f"ended with {self.code}: {self.log[-3000:]}"

    async def ended(self, *, seconds: float = PATIENCE_SECONDS) -> int:
        await until(lambda: self.code is not None, f"the end of {self.pid}", seconds=seconds)
        assert self.code is not None
        return self.code


@dataclass
class Ward:
    """Starts the operators of one test and ends them with it."""

    nursery: Nursery
    folder: Path
    operators: list[Operator] = field(default_factory=list)

    def start(
        self,
        url: str,
        *,
        who: str = "operator",
        settings: dict[str, Any] | None = None,
        constants: dict[str, Any] | None = None,
        address: str = "",
    ) -> Operator:
        """An operator forked from the nursery; `who` is its token, which the server's journal shows, `address` its pod's."""
        variables, log = self._prepare(url, who, settings or {})
        variables |= {"POD_IP": address} if address else {}
        order = {"environment": variables, "log": str(log), "constants": PATIENT if constants is None else constants}
        pid = self.nursery.ask({"start": order})["pid"]
        return self._keep(Operator(pid, log, lambda: self.nursery.ask({"poll": pid})["code"]))

    async def lead(
        self, server: ApiServer, *, settings: dict[str, Any] | None = None, constants: dict[str, Any] | None = None
    ) -> Operator:
        """An operator that has the Lease and hears of everything."""
        operator = self.start(server.url, settings=settings, constants=constants)
        await operator.says("leading as")
        await until(lambda: all(server.streams(plural) for plural in WATCHED), "the watches")
        return operator

    def start_process(self, url: str, *, who: str = "operator", settings: dict[str, Any] | None = None) -> Operator:
        """As the container starts it: `python -m inference_operator`."""
        variables, log = self._prepare(url, who, settings or {})
        with log.open("ab") as target:
            process = subprocess.Popen(
                [sys.executable, "-m", "inference_operator"], env={**environment(), **variables}, stdout=target, stderr=target
            )
        return self._keep(Operator(process.pid, log, process.poll))

    def end(self) -> None:
        for operator in self.operators:
            operator.kill()

    def _keep(self, operator: Operator) -> Operator:
        self.operators.append(operator)
        return operator

    def _prepare(self, url: str, who: str, settings: dict[str, Any]) -> tuple[dict[str, str], Path]:
        number = len(self.operators)
        kubeconfig = self.folder / f"kubeconfig-{number}.json"
        kubeconfig.write_text(json.dumps(_kubeconfig(url, who)))
        config = self.folder / f"settings-{number}.json"
        config.write_text(json.dumps({**SETTINGS, **settings}))
        variables = {
            "KUBECONFIG": str(kubeconfig),
            "INFERENCE_OPERATOR_CONFIG": str(config),
            "POD_NAMESPACE": "operator-system",
        }
        return variables, self.folder / f"operator-{number}.log"


def _kubeconfig(url: str, who: str) -> dict[str, Any]:
    return {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": who}}],
    }
