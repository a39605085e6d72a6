"""What happened in a simulation, one readable line an event, and its comparison with the golden file.

UPDATE_TRACES=1 writes the files anew: read the difference like code.
"""

import asyncio
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from inference_operator.api import names
from tests.simulation.virtual_time import START

TESTDATA = Path(__file__).parent / "testdata"

Raw = dict[str, Any]


def _place_in(queue: Raw) -> str:
    start = queue.get("expectedStartTime")
    when = f"should start at {(datetime.fromisoformat(start) - START).total_seconds():.0f} s" if start else "no start in sight"
    return f"number {queue['position']} of the queue, {when}"


def whose(raw: Raw) -> str:
    """What a worker pod belongs to: its job, or the pool of its model."""
    labels = raw["metadata"]["labels"]
    return str(labels[names.LABEL_JOB] if names.LABEL_JOB in labels else f"pool-{labels[names.LABEL_MODEL]}")


def is_placeholder(raw: Raw) -> bool:
    """Whether a pod is a placeholder, which nothing runs in."""
    return names.LABEL_PLACEHOLDER in raw["metadata"]["labels"]


def pinned_to(raw: Raw) -> str | None:
    """The node that a pod was created for; None for a placeholder."""
    if "affinity" not in raw["spec"]:
        return None
    (term,) = raw["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(term["matchFields"][0]["values"][0])


def _measured(status: Raw) -> object:
    """What a trace tells of a model: its figures and its pool."""
    figures = [
        (p["digest"], p["accelerator"], p["samples"], p["itemsPerSecond"], p["loadSeconds"]) for p in status.get("profiles", [])
    ]
    return figures, status.get("warmPool")


class Trace:
    """Lines of time, job and what happened."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._last: dict[str, str] = {}
        self._measured: dict[str, object] = {}

    def say(self, who: str, what: str) -> None:
        """Write a line."""
        self.lines.append(f"{asyncio.get_running_loop().time():7.1f} s  {who:<10} {what}")

    def model(self, name: str, status: Raw) -> None:
        """Take in what is known of a model before anything happens."""
        self._measured[name] = _measured(status)

    def worker(self, raw: Raw, what: str) -> None:
        """Write what a worker does."""
        labels = raw["metadata"]["labels"]
        who = "placeholder" if is_placeholder(raw) else f"worker {labels[names.LABEL_ATTEMPT]}"
        self.say(whose(raw), f"{who} {what}")

    def operator(self, verb: str, at: Any, raw: Raw) -> None:
        """Write what the operator does: a listener of the API."""
        match verb, at.plural:
            case "create", "pods":
                self.worker(raw, f"is created for {pinned_to(raw) or 'a new node'}")
            case "delete", "pods":
                self.worker(raw, "is told to stop")
            case "apply", "inferencejobs":
                self._status(raw)
            case "apply", "inferencemodels":
                # What is said of its spec and its jobs is no event of theirs.
                if self._measured.get(at.name) != (measured := _measured(raw["status"])):
                    self._measured[at.name] = measured
                    self.say(at.name, "is measured")
            case (("create" | "apply"), "endpointslices"):
                ready = sum(one["conditions"]["ready"] for one in raw["endpoints"])
                self.say(raw["metadata"]["labels"][names.LABEL_JOB], f"endpoints {ready} of {len(raw['endpoints'])} ready")
            case "create", "events":
                # A step for the better is told by the status that goes with it.
                if raw["type"] == "Warning":
                    self.say(raw["regarding"]["name"], f"warning {raw['reason']}: {raw['note']}")
            case _:
                self.say(raw["metadata"]["name"], f"{verb} {at.plural}")

    def _status(self, raw: Raw) -> None:
        name, status = raw["metadata"]["name"], raw["status"]
        words = [f"status {status.get('phase')}/{status.get('reason')}"]
        deadline, progress = status.get("deadline"), status.get("progress")
        if deadline is not None:
            slack = f" {deadline['slackSeconds']:+} s" if "slackSeconds" in deadline else ""
            words.append(f"{deadline['outlook']}{slack}")
        if (queue := status.get("queue")) is not None:
            words.append(_place_in(queue))
        if progress is not None:
            words.append(f"{progress['completed']} of {progress['total']} items")
        if status.get("failedAttempts"):
            words.append(f"{status['failedAttempts']} failed")
        if status.get("selector"):
            words.append(f"{status['readyReplicas']} of {status['replicas']} ready")
        text = ", ".join(words)
        self.say(name, text if text != self._last.get(name) else f"{text} (other words)")
        self._last[name] = text

    def check(self, name: str) -> None:
        """Compare with the golden file, or write it."""
        path, text = TESTDATA / f"{name.replace(' ', '-')}.trace", "\n".join([*self.lines, ""])
        if os.environ.get("UPDATE_TRACES") == "1":
            path.write_text(text)
        assert text == path.read_text(), f"{path.name} differs; UPDATE_TRACES=1 writes it anew"
