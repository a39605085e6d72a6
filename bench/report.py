"""The form of every benchmark's result."""

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Target:
    """One bound that we set ourselves, and what was measured against it."""

    id: str
    what: str
    value: float
    bound: str
    holds: bool


def at_most(name: str, what: str, value: float, bound: float) -> Target:
    """A target that holds when the value does not exceed the bound."""
    return Target(name, what, round(value, 4), f"<= {bound:g}", value <= bound)


def at_least(name: str, what: str, value: float, bound: float) -> Target:
    """A target that holds when the value reaches the bound."""
    return Target(name, what, round(value, 4), f">= {bound:g}", value >= bound)


@dataclass(frozen=True, slots=True)
class Result:
    """What a benchmark returns: its rounds as it measured them, and its targets."""

    rounds: list[dict[str, Any]]
    targets: list[Target] = field(default_factory=list)


def write(name: str, result: Result) -> Path:
    """Write build/bench/NAME.json and return its path."""
    path = ROOT / "build" / "bench" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "name": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD") + ("+changes" if _git("status", "--porcelain") else ""),
        "machine": _machine(),
        "rounds": result.rounds,
        "targets": [asdict(target) for target in result.targets],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _machine() -> dict[str, Any]:
    model = next(
        (x.split(":", 1)[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), ""
    )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memoryMib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
