"""Does to the local cluster what a story says, and makes it whole again."""

import signal
import time
from collections.abc import Callable
from dataclasses import replace

from bench.failures.stage import SERVICE, Stage, end_node, restarting, revive_node, running_leader, signal_operator, signal_worker
from dev.cluster import NODES, freeze_api, kill_api, start_api
from dev.cluster.network import end_silence, silence
from examples.demo.cluster import RELEASE, Manifest
from tests.chaos.story import Fault, Kind
from tests.chaos.verdict import Told
from tests.chaos.volume import barred, filled, output_of

# What no worker outlives.
_ENDS = frozenset({Kind.WORKER_KILLED, Kind.NODE_DEAD})
_DRAIN_SECONDS = 90
_SLOW_SECONDS = 2.0


class Faults:
    """All faults of one namespace. `batches` are the jobs that run beside the service."""

    def __init__(self, at: Stage, batches: Callable[[], list[str]]) -> None:
        self._at = at
        self._batches = batches
        self._rolled = 0
        # Workers that were ended.
        self._ended: set[str] = set()
        self._kinds: dict[Kind, Callable[[Fault], str]] = {
            Kind.WORKER_KILLED: self._kill_worker,
            Kind.WORKER_FROZEN: self._freeze_worker,
            Kind.POD_DELETED: self._delete_pod,
            Kind.LEADER_KILLED: self._kill_leader,
            Kind.LEADER_FROZEN: self._freeze_leader,
            Kind.NODE_SILENT: self._silence_node,
            Kind.NODE_DEAD: self._end_node,
            Kind.NODE_DRAINED: self._drain_node,
            Kind.API_AWAY: self._take_api_away,
            Kind.API_FROZEN: self._freeze_api,
            Kind.API_SLOW: self._slow_api,
            Kind.OUTPUT_FULL: self._fill_output,
            Kind.OUTPUT_BARRED: self._bar_output,
            Kind.OPERATOR_ROLLED: self._roll_operator,
            Kind.BATCH_SUSPENDED: self._suspend_batch,
            Kind.SERVICE_ROLLED: self._roll_out,
        }

    def do(self, fault: Fault) -> Told:
        """Wait as long as it says, do it, and undo what can be undone."""
        time.sleep(fault.calm)
        # A status may not say yet what was done a moment ago.
        before = {name: node for name, node in self._at.places(SERVICE).items() if name not in self._ended}
        operators = set(self._at.operators().values())
        begun = time.time()
        whom = self._kinds[fault.kind](fault)
        hit = [name for name, node in before.items() if whom in (name, node)]
        left = before.keys() - set(hit)
        if fault.kind in _ENDS:
            self._ended.update(hit)
        # Where both replicas of the operator were there, nobody tells callers of it until they are back.
        return Told(fault, begun, time.time(), whom, alone=not left or operators == {whom})

    def _workers(self) -> list[Manifest]:
        jobs = [SERVICE, *self._batches()]
        found = [pod for job in jobs for pod in self._at.workers(job) if pod["status"].get("phase") == "Running"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def _worker(self, fault: Fault) -> str:
        found = self._workers()
        return str(found[fault.number % len(found)]["metadata"]["name"]) if found else ""

    def _kill_worker(self, fault: Fault) -> str:
        if name := self._worker(fault):
            signal_worker(name, signal.SIGKILL)
        return name

    def _freeze_worker(self, fault: Fault) -> str:
        if name := self._worker(fault):
            signal_worker(name, signal.SIGSTOP)
            time.sleep(fault.seconds)
            signal_worker(name, signal.SIGCONT)
        return name

    def _delete_pod(self, fault: Fault) -> str:
        if name := self._worker(fault):
            self._at.kube.run("delete", "pod", name, "--wait=false", "--ignore-not-found")
        return name

    def _kill_leader(self, _: Fault) -> str:
        leader = running_leader(self._at)
        with restarting(self._at, leader):
            signal_operator(leader, signal.SIGKILL)
        return leader

    def _freeze_leader(self, fault: Fault) -> str:
        leader = running_leader(self._at)
        signal_operator(leader, signal.SIGSTOP)
        time.sleep(fault.seconds)
        signal_operator(leader, signal.SIGCONT)
        return leader

    def _silence_node(self, fault: Fault) -> str:
        node = NODES[fault.number % len(NODES)]
        silence(node)
        try:
            time.sleep(fault.seconds)
        finally:
            end_silence(node)
        return node.name

    def _end_node(self, fault: Fault) -> str:
        node = NODES[fault.number % len(NODES)]
        end_node(self._at, node.name)
        time.sleep(fault.seconds)
        revive_node(self._at, node.name)
        return node.name

    def _drain_node(self, fault: Fault) -> str:
        name = NODES[fault.number % len(NODES)].name
        options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={_DRAIN_SECONDS}s")
        try:
            self._at.kube.run("drain", name, *options)
            time.sleep(fault.seconds)
        except RuntimeError:
            name = f"{name}, which was not done in {_DRAIN_SECONDS} s"
        finally:
            self._at.kube.run("uncordon", NODES[fault.number % len(NODES)].name)
        return name

    def _take_api_away(self, fault: Fault) -> str:
        kill_api(self._at.layout)
        time.sleep(fault.seconds)
        start_api(self._at.layout)
        return "the control plane"

    def _freeze_api(self, fault: Fault) -> str:
        freeze_api(self._at.layout, frozen=True)
        try:
            time.sleep(fault.seconds)
        finally:
            freeze_api(self._at.layout, frozen=False)
        return "the API server"

    def _slow_api(self, fault: Fault) -> str:
        """Answer after two seconds or so: it stands still for most of the time."""
        for _ in range(round(fault.seconds / _SLOW_SECONDS)):
            self._freeze_api(replace(fault, seconds=0.9 * _SLOW_SECONDS))
            time.sleep(0.1 * _SLOW_SECONDS)
        return "the API server"

    def _fill_output(self, fault: Fault) -> str:
        with filled(output_of(self._at.volume)):
            time.sleep(fault.seconds)
        return "the volume of the batches"

    def _bar_output(self, fault: Fault) -> str:
        with barred(output_of(self._at.volume)):
            time.sleep(fault.seconds)
        return "the volume of the batches"

    def _roll_operator(self, _: Fault) -> str:
        """Both versions are there at a time, as in an upgrade."""
        self._at.system.run("rollout", "restart", f"deploy/{RELEASE}")
        self._at.system.run("rollout", "status", f"deploy/{RELEASE}", f"--timeout={_DRAIN_SECONDS}s")
        return RELEASE

    def _suspend_batch(self, fault: Fault) -> str:
        batches = self._batches()
        if not batches:
            return ""
        name = batches[fault.number % len(batches)]
        for suspended in (True, False):
            self._at.kube.run("patch", "ij", name, "--type=merge", "-p", f'{{"spec":{{"suspend":{str(suspended).lower()}}}}}')
            time.sleep(fault.seconds)
        return name

    def _roll_out(self, _: Fault) -> str:
        self._rolled += 1
        size = 4 + self._rolled % 4
        self._at.kube.run("patch", "ij", SERVICE, "--type=merge", "-p", f'{{"spec":{{"batchSize":{size}}}}}')
        return f"{SERVICE} with batchSize {size}"
