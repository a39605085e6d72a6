"""Polls every ready worker several times a second, and keeps in the store who is suspected, and who answers.

Each replica of the operator does so for itself. The operator's own pauses are no evidence: silence is counted in the time in which
it was listening, and what has come is read before anybody is judged.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from inference_operator.api.instants import EARLIEST
from inference_operator.liveness.detector import LIMITS, Cause, Evidence, Limits, NodeEvidence, cut_off, is_silent, weigh
from inference_operator.liveness.patience import Patience
from inference_operator.liveness.polled import Polled
from inference_operator.observability import metrics
from inference_operator.runtime.clock import Clock
from inference_operator.runtime.pings import Word
from inference_operator.state.objects import Node, Pod, PodPhase
from inference_operator.state.store import Store

log = logging.getLogger(__name__)

# Workers are asked in turns, so that a thousand of them are no burst: each is asked once in `_TURNS` steps.
STEP_SECONDS = 0.05
_TURNS = 5
# A connection that stays silent so long is made anew: TCP repeats ever more rarely, and would hear of a cured network last.
_RENEW_SECONDS = 1.0
# Nobody on this node is silent: what is asked of it in the end is never a question of the node.
_QUIET = NodeEvidence(0, 0)


class Pinger(Protocol):
    """What asks."""

    def ask(self, key: str, address: str) -> None:
        """Ask once, unless a question still waits for its answer."""
        ...

    def forget(self, key: str) -> None:
        """Close the connection."""
        ...

    def collect(self) -> Iterable[tuple[str, Word]]:
        """What has come."""
        ...


class Prober:
    """Evidence of all workers, and the suspicions in the store.

    `wake_owner` has those look whom a worker concerns, `wake_waiting` those who wait for a place on some node.
    """

    def __init__(
        self,
        store: Store,
        pings: Pinger,
        clock: Clock,
        wake_owner: Callable[[Pod], None],
        wake_waiting: Callable[[], None],
        limits: Limits = LIMITS,
    ) -> None:
        self._store = store
        self._pings = pings
        self._clock = clock
        self._wake_owner = wake_owner
        self._wake_waiting = wake_waiting
        self._limits = limits
        self._polled: dict[str, Polled] = {}
        self._on: dict[str, int] = {}
        # Those who never answered, though workers like them answer on other nodes.
        self._unheard: set[str] = set()
        # Who gives cause to look closer: silent beyond one poll, refusing, or suspected.
        self._odd: set[str] = set()
        self._patience = Patience()
        self._steps = 0
        self._listened = 0.0
        self._last: float | None = None

    async def run(self) -> None:
        """Poll for ever."""
        due = self._clock.monotonic()
        while True:
            due = max(due + STEP_SECONDS, self._clock.monotonic())
            await asyncio.sleep(due - self._clock.monotonic())
            self.step()

    def step(self) -> None:
        """Read what has come, judge, and ask those whose turn it is."""
        now = self._clock.monotonic()
        # What the operator has slept through counts as one late step.
        self._listened += min(now - self._last, 2 * STEP_SECONDS) if self._last is not None else 0.0
        self._last = now
        for uid, word in self._pings.collect():
            if (polled := self._polled.get(uid)) is not None and uid not in self._store.displaced:
                self._hear(polled, word)
        if self._steps % _TURNS == 0:
            self._follow()
        self._judge()
        self._ask(self._steps % _TURNS)
        self._steps += 1

    def _follow(self) -> None:
        """Poll those who are ready, or were so and answered, and nobody else."""
        ready = {pod.uid: pod for pod in self._store.pods.values() if pod.worker is not None and self._is_polled(pod)}
        for uid in self._polled.keys() - ready.keys():
            del self._polled[uid]
            self._odd.discard(uid)
            self._store.heard.discard(uid)
            self._pings.forget(uid)
        for uid, pod in ready.items():
            known = self._polled.get(uid)
            if known is None:
                self._polled[uid] = Polled(pod, self._listened)
            else:
                known.pod = pod
        self._displace()
        self._unheard = self._find_unheard()
        self._on = {}
        for pod in ready.values():
            self._on[pod.node or ""] = self._on.get(pod.node or "", 0) + 1

    def _find_unheard(self) -> set[str]:
        due = self._listened - self._limits.unheard_seconds
        mute = {uid: polled for uid, polled in self._polled.items() if not polled.answered and polled.begun <= due}
        heard: dict[tuple[str, str], set[str | None]] = {}
        for polled in self._polled.values() if mute else ():
            if polled.answered and not polled.verdict.suspected:
                heard.setdefault(_likeness(polled.pod), set()).add(polled.pod.node)
        return {uid for uid, polled in mute.items() if heard.get(_likeness(polled.pod), set()) - {polled.pod.node}}

    def _displace(self) -> None:
        """Find workers whose address a later pod has, of whomever: whatever answers there is not they."""
        there = [pod for pod in self._store.pods.values() if pod.address is not None and not pod.terminal]
        workers = [pod for pod in there if pod.worker is not None]
        addresses = {pod.address for pod in workers}
        # One that waited long for its node is older than who had the address before it.
        found = (pod for pod in there if pod.address in addresses)
        shared = sorted(found, key=lambda pod: pod.bound_since or pod.created or EARLIEST)
        holders = {pod.address: pod.uid for pod in shared}
        displaced = {pod.uid: pod for pod in workers if holders[pod.address] != pod.uid}
        before, self._store.displaced = self._store.displaced, frozenset(displaced)
        for uid in displaced.keys() - before:
            self._wake_owner(displaced[uid])

    def _is_polled(self, pod: Pod) -> bool:
        if pod.phase is not PodPhase.RUNNING or pod.address is None or pod.deleting or pod.over:
            return False
        # The control plane takes pods for not ready whose node it can't reach, and a kubelet that restarts all of its own: that is
        # when it matters whether they answer.
        known = self._polled.get(pod.uid)
        return pod.ready or pod.containers_ready or (known is not None and known.answered)

    def _hear(self, polled: Polled, word: Word) -> None:
        late = polled.asked is not None and self._listened - polled.asked > self._limits.late_seconds
        polled.asked = None
        if word is Word.ANSWERED:
            if not polled.answered:
                # Its silence means something from now on.
                log.info("worker %s on %s answers", polled.pod.key, polled.pod.node)
            polled.answered = True
            polled.refusals = 0
            if not polled.verdict.suspected:
                self._store.heard.add(polled.pod.uid)
            polled.answers = 0 if late else polled.answers + 1
            polled.spoke = polled.spoke if late else self._listened
        else:
            polled.refusals += 1
            polled.answers = 0
            self._odd.add(polled.pod.uid)

    def _ask(self, turn: int) -> None:
        for number, (uid, polled) in enumerate(self._polled.items()):
            if number % _TURNS != turn:
                continue
            if polled.asked is None:
                polled.asked = polled.renewed = self._listened
            else:
                self._odd.add(uid)
                if self._listened - polled.renewed >= _RENEW_SECONDS:
                    self._pings.forget(uid)
                    polled.renewed = self._listened
            assert polled.pod.address is not None
            self._pings.ask(uid, polled.pod.address)

    def _judge(self) -> None:
        if not self._odd and not self._store.suspected:
            return
        found = {uid: self._evidence(self._polled[uid]) for uid in self._odd}
        nodes = self._nodes(found)
        # Told by itself, since it is the operator who may be the one that nobody hears.
        alone = cut_off(nodes)
        suspected, recovering, silent, told = set[str](), set[str](), dict[str, Pod](), []
        for uid, evidence in found.items():
            polled = self._polled[uid]
            before = polled.verdict
            seen = _without_silence(evidence) if alone else evidence
            polled.verdict = weigh(before, seen, nodes.get(polled.pod.node or "", _QUIET), self._listened, self._limits)
            if before.suspected != polled.verdict.suspected:
                told.append(polled)
            if polled.verdict.suspected:
                suspected.add(uid)
                if polled.verdict.cause is not Cause.REFUSING:
                    silent[uid] = polled.pod
                if evidence.answers and not evidence.refusals and not is_silent(evidence, self._limits):
                    recovering.add(uid)
            elif not evidence.refusals and not evidence.silent:
                self._odd.discard(uid)
        self._store.suspected, self._store.silent = frozenset(suspected), silent
        self._judge_lost(silent)
        recovering_before, self._store.recovering = self._store.recovering, frozenset(recovering)
        nodes_before, self._store.silent_nodes = self._store.silent_nodes, self._silent_nodes(silent)
        if nodes_before != self._store.silent_nodes:
            self._wake_waiting()
        metrics.suspected_workers.set(len(suspected))
        for polled in told:
            self._tell(polled)
        for uid in (recovering_before ^ self._store.recovering) & self._store.suspected:
            self._wake_owner(self._polled[uid].pod)

    def _judge_lost(self, silent: dict[str, Pod]) -> None:
        """Whose silence is too young to make it lost, whatever is said of its node: it has a successor, and isn't ended yet."""
        just = frozenset(uid for uid in silent if self._listened - self._polled[uid].verdict.since < self._limits.lost_seconds)
        before, self._store.just_silent = self._store.just_silent, just
        for uid in (before - just) & silent.keys():
            self._wake_owner(silent[uid])

    def _tell(self, polled: Polled) -> None:
        pod, cause = polled.pod, polled.verdict.cause
        if cause is not None:
            self._store.heard.discard(pod.uid)
            log.warning("worker %s on %s is suspected: %s", pod.key, pod.node, cause)
            metrics.suspicions_total.labels(cause).inc()
            polled.answers = 0
        else:
            self._store.heard.add(pod.uid)
            log.info("worker %s on %s speaks again", pod.key, pod.node)
            metrics.suspicions_withdrawn_total.inc()
        self._wake_owner(pod)

    def _evidence(self, polled: Polled) -> Evidence:
        if not polled.answered:
            return Evidence(self._listened - polled.begun) if polled.pod.uid in self._unheard else Evidence()
        silent = self._listened - polled.asked if polled.asked is not None else 0.0
        return Evidence(silent, polled.refusals, polled.answers)

    def _silent_nodes(self, silent: dict[str, Pod]) -> frozenset[str]:
        """Nodes where a worker fell silent and no other has answered since: one that hangs alone says nothing of its node.

        It says nothing of it either once the control plane would have heard of a dead node, or where it is silent again and again.
        """
        since: dict[str, float] = {}
        whose: dict[str, set[str]] = {}
        for uid, pod in silent.items():
            node = pod.node or ""
            since[node] = max(since.get(node, 0.0), self._polled[uid].verdict.since)
            whose.setdefault(node, set()).add(pod.key.namespace)
        for polled in self._polled.values() if since else ():
            node = polled.pod.node or ""
            if not polled.verdict.suspected and polled.spoke > since.get(node, polled.spoke):
                del since[node]
        known = self._store.nodes
        return frozenset(
            node for node in since if self._patience.bars(whose[node], node, self._listened) or _doubted(known.get(node))
        )

    def _nodes(self, found: dict[str, Evidence]) -> dict[str, NodeEvidence]:
        silent: dict[str, int] = {}
        for uid, evidence in found.items():
            name = self._polled[uid].pod.node or ""
            silent[name] = silent.get(name, 0) + is_silent(evidence, self._limits)
        known = self._store.nodes
        return {name: NodeEvidence(count, silent.get(name, 0), _doubted(known.get(name))) for name, count in self._on.items()}


def _likeness(pod: Pod) -> tuple[str, str]:
    """What workers have in common to which the same policies apply."""
    return pod.owner_uid, pod.worker.revision if pod.worker is not None else ""


def _without_silence(evidence: Evidence) -> Evidence:
    """The evidence of one who can't be expected to be heard: what was refused stays."""
    return Evidence(0.0, evidence.refusals, evidence.answers)


def _doubted(node: Node | None) -> bool:
    return node is None or not node.ready or not node.reachable
