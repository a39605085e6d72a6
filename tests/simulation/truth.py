"""What a status may never say, in any state: rules between its fields, and from one status to the next.

A table, not examples: every status that any simulation writes is held against every rule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Raw = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """A job as it was written, and its status before, if that told of the same generation."""

    spec: Raw
    generation: int
    status: Raw
    before: Raw

    def truth(self, kind: str) -> str | None:
        """A condition's status."""
        return next((each["status"] for each in self.status.get("conditions", []) if each["type"] == kind), None)

    @property
    def batch(self) -> bool:
        """Whether it is a batch."""
        return "input" in self.spec

    @property
    def ended(self) -> bool:
        """Whether the job has come to an end."""
        return self.truth("Succeeded") in ("True", "False")

    def at(self, *path: str) -> Any:
        """A field of the status; None where it is absent."""
        found: Any = self.status
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def was(self, *path: str) -> Any:
        """The same in the status before."""
        return Seen(self.spec, self.generation, self.before, {}).at(*path)


def _adds_up(cost: Raw | None) -> bool:
    if cost is None:
        return True
    terms = (("latencyWeight", "latencySeconds"), ("energyWeight", "energyJoules"), ("switchWeight", "switchSeconds"))
    # The profile of a test may know no weights: then only the seconds count.
    total = sum(cost.get(weight, 1.0 if weight == "latencyWeight" else 0.0) * cost[term] for weight, term in terms)
    return abs(total - cost["total"]) <= 0.001 + 1e-9 * abs(total)


def _summary(seen: Seen) -> str | None:
    reasons = {each["type"]: each["reason"] for each in seen.status.get("conditions", [])}
    return next((reasons[kind] for kind in ("Ready", "Suspended", "Succeeded") if kind in reasons), None)


RULES: dict[str, Callable[[Seen], bool]] = {
    "late by its slack, it is not on time": lambda s: (
        (s.at("deadline", "slackSeconds") or 0) >= 0 or s.at("deadline", "outlook") in ("AtRisk", "Missed")
    ),
    "a deadline that is met leaves slack": lambda s: s.at("deadline", "outlook") != "Met" or s.at("deadline", "slackSeconds") >= 0,
    "a batch has met its deadline once it has succeeded": lambda s: (
        not (s.batch and s.at("deadline", "outlook") == "Met") or s.truth("Succeeded") == "True"
    ),
    "what has failed is not on its way to its deadline": lambda s: (
        s.truth("Succeeded") != "False"
        or s.at("deadline") is None
        or (s.at("deadline", "outlook") == "Missed" and s.at("deadline", "estimatedCompletionTime") is None)
        or (not s.batch and s.at("deadline", "outlook") == "Met")
    ),
    "what is missed stays missed, but for an end in time whose news was late": lambda s: (
        s.was("deadline", "outlook") != "Missed"
        or s.was("deadline", "time") != s.at("deadline", "time")
        or s.at("deadline", "outlook") == "Missed"
        or (s.batch and s.at("deadline", "outlook") == "Met" and s.at("completionTime") <= s.at("deadline", "time"))
    ),
    "the phase is what the conditions say": lambda s: (s.at("phase") == "Succeeded") == (s.truth("Succeeded") == "True"),
    "what has failed is stalled": lambda s: s.truth("Succeeded") != "False" or s.truth("Stalled") == "True",
    "nothing moves that is stalled": lambda s: not (s.truth("Stalled") == "True" and s.truth("Reconciling") == "True"),
    "an end has its time, and only an end": lambda s: s.at("completionTime") is None or s.ended,
    "a batch that has ended says when": lambda s: not (s.batch and s.ended) or s.at("completionTime") is not None,
    "what has ended is in no queue": lambda s: not s.ended or s.at("queue") is None,
    "a batch is ready when it has succeeded": lambda s: (
        not s.batch or (s.truth("Ready") == "True") == (s.truth("Succeeded") == "True")
    ),
    "a service is ready while a worker answers": lambda s: (
        s.batch or s.truth("Ready") != "True" or s.at("phase") == "ScaledToZero" or s.at("readyReplicas") >= 1
    ),
    "a service that answered once is ready while a worker answers": lambda s: (
        s.batch
        or not s.at("readyTime")
        or not s.at("readyReplicas")
        or s.truth("Accepted") != "True"
        or s.at("phase") == "ScaledToZero"
        or s.truth("Ready") == "True"
    ),
    "a service lends no more workers than it has": lambda s: (
        len({one["pod"] for one in s.at("backgroundTasks") or []}) <= (s.at("replicas") or 0)
    ),
    "no more answer than there are": lambda s: (s.at("readyReplicas") or 0) <= (s.at("replicas") or 0),
    "the reason is the summary's": lambda s: s.at("reason") == _summary(s),
    "all conditions tell of the generation of the status": lambda s: all(
        each["observedGeneration"] == s.at("observedGeneration") <= s.generation for each in s.status["conditions"]
    ),
    "what queues has no place": lambda s: s.at("queue") is None or s.truth("Placed") == "False",
    "a cost is the sum of its terms": lambda s: (
        _adds_up(s.at("placement", "cost")) and all(_adds_up(each.get("cost")) for each in s.at("placement", "alternatives") or [])
    ),
    "what is suspended has no worker and asks for nothing": lambda s: (
        s.truth("Suspended") != "True" or (not s.at("replicas") and s.truth("Reconciling") is None and s.truth("Ready") is None)
    ),
    "no more is done than there is": lambda s: (
        s.at("progress") is None or s.at("progress", "completed") <= s.at("progress", "total")
    ),
    "a batch that succeeds has done all": lambda s: (
        not (s.batch and s.truth("Succeeded") == "True" and s.at("progress"))
        or s.at("progress", "completed") == s.at("progress", "total")
    ),
    "no more attempts failed than there were": lambda s: (s.at("failedAttempts") or 0) <= (s.at("attempts") or 0),
    "the last attempt is one of the attempts": lambda s: (
        s.at("lastAttempt") is None or s.at("lastAttempt", "number") <= s.at("attempts")
    ),
    "attempts are not forgotten": lambda s: (s.was("attempts") or 0) <= (s.at("attempts") or 0),
    "work that is committed is not forgotten": lambda s: s.was("progress") is None or s.at("progress") is not None,
    "energy that is spent is not forgotten": lambda s: (s.was("energy", "joules") or 0.0) <= (s.at("energy", "joules") or 0.0),
    "what serves in full is on no way": lambda s: s.at("reason") != "Serving" or s.truth("Reconciling") != "True",
    "a worker that answers is not starting": lambda s: s.at("reason") != "Starting" or s.batch or s.truth("Ready") != "True",
}


def contradictions(raw: Raw, before: Raw) -> list[str]:
    """The rules that a job breaks, whose status was `before`."""
    status = raw.get("status") or {}
    if not status.get("conditions"):
        return []
    same = before if before.get("observedGeneration") == status.get("observedGeneration") else {}
    seen = Seen(raw["spec"], raw["metadata"]["generation"], status, same)
    return [rule for rule, holds in RULES.items() if not holds(seen)]
