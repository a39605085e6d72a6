"""Weigh the evidence for and against a worker's life. Pure: all times are seconds in which the operator itself was listening.

A suspicion is cheap, and is taken back once the worker speaks again. What is done on it has to be safe should it be wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Cause(StrEnum):
    """Why a worker is suspected."""

    SILENT = "silent"
    REFUSING = "refusing"
    NODE_SILENT = "node_silent"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much evidence makes a suspicion.

    TCP repeats what was lost after 0.2 and 0.6 s: `silent_seconds` bears two lost packets in a row, `node_seconds` one of each
    worker.
    """

    silent_seconds: float = 0.7
    # All workers of a node are silent at once, of which there are two or more.
    node_seconds: float = 0.5
    # The control plane has doubts about the node too.
    doubted_seconds: float = 0.35
    # One that never answered, while others like it do: no policy keeps the operator from it.
    unheard_seconds: float = 10.0
    # From when on the silence of one on a node that the control plane can't reach makes it lost.
    lost_seconds: float = 10.0
    # Connections refused or reset in a row, without an answer between them.
    refusals: int = 2
    # An answer that takes longer takes no suspicion back: the worker or its node is slow.
    late_seconds: float = 0.5
    # Answers in a row that take a first suspicion back; each further one asks for twice as many, up to `most_answers`.
    answers: int = 2
    most_answers: int = 64
    # After so long without suspicion the next one counts as the first.
    calm_seconds: float = 60.0


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What polls have found: for how long a question waits for its answer, refusals in a row, and timely answers in a row."""

    silent: float = 0.0
    refusals: int = 0
    answers: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is thought of a worker: why it is suspected if it is, how often in turn, and since when it stands so."""

    cause: Cause | None = None
    times: int = 0
    since: float = 0.0

    @property
    def suspected(self) -> bool:
        """Whether it is."""
        return self.cause is not None


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """A node as the polls and the control plane see it: how many workers are polled there, and how many are silent."""

    workers: int
    silent: int
    # Its Ready condition is not True, or the node is gone.
    doubted: bool = False

    @property
    def dead(self) -> bool:
        """Whether it can be suspected as a whole: one worker alone says nothing about its node."""
        return self.workers > 1 and self.silent == self.workers


def weigh(before: Verdict, evidence: Evidence, node: NodeEvidence, now: float, limits: Limits = LIMITS) -> Verdict:
    """Return what to think of a worker now."""
    if before.suspected:
        wanted = min(limits.answers * 2 ** (min(before.times, 16) - 1), limits.most_answers)
        return replace(before, cause=None, since=now) if evidence.answers >= wanted else before
    cause = _cause(evidence, node, limits)
    if cause is None:
        return before
    again = before.times if now - before.since < limits.calm_seconds else 0
    return Verdict(cause, again + 1, now)


def is_silent(evidence: Evidence, limits: Limits = LIMITS) -> bool:
    """Whether a worker's silence counts against its node."""
    return evidence.silent >= limits.node_seconds


def cut_off(nodes: Mapping[str, NodeEvidence]) -> bool:
    """Whether it is rather the operator that hears nobody: most of three or more nodes fell silent, and no condition says why."""
    silent = sum(node.silent == node.workers and not node.doubted for node in nodes.values())
    return len(nodes) > 2 and 2 * silent > len(nodes)


def _cause(evidence: Evidence, node: NodeEvidence, limits: Limits) -> Cause | None:
    if evidence.refusals >= limits.refusals:
        return Cause.REFUSING
    if node.dead and evidence.silent >= limits.node_seconds:
        return Cause.NODE_SILENT
    enough = limits.doubted_seconds if node.doubted else limits.silent_seconds
    return Cause.SILENT if evidence.silent >= enough else None
