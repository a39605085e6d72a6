"""`make chaos SEED=1 FAULTS=50`: rounds of faults against the local cluster under load, and what they came to.

Each round has a story of its own, drawn from the seed and the round's number. What a round came to is kept in build/chaos, and a
run that was cut off goes on with the next one. A round that fails is told with its seed, and played again in ever shorter stories.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.autoscaling.load import read
from bench.failures.stage import SERVICE, TOLERATIONS, Stage, calling, restore, settle, stage
from bench.plane.audit import parse, since, watches
from dev.console import say
from examples.demo.cluster import ROOT, wait_for
from tests.beside import beside
from tests.chaos.claims import Claims
from tests.chaos.faults import Faults
from tests.chaos.records import blind, charges
from tests.chaos.story import HOLDS_PACKETS, Kind, Story, draw, shrunk
from tests.chaos.verdict import Told, gaps, lost, nearest
from tests.chaos.volume import output_of, small
from tests.e2e.support import a_slow_batch, truth_of_slow_batches

_ROUND_FAULTS = 50
_BESIDE = 2
"""Batches that run at any time."""

_REPEAT = 4
_LONGEST_SECONDS = 1800.0
_HEAL_SECONDS = 180


@dataclass
class Round:
    """What one story came to: `wrong` is empty where all is well."""

    seed: int
    faults: int = 0
    asked: int = 0
    failed: int = 0
    batches: int = 0
    items: int = 0
    claims: int = 0
    requests: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Batches:
    """Batches that run beside the service, one after the other in so many lanes; all that ever were are kept."""

    def __init__(self, at: Stage, label: str) -> None:
        self._at = at
        self._label = label
        self.names: list[str] = []

    def running(self) -> AbstractContextManager[None]:
        """Start new ones until the block ends."""
        return beside(self._run)

    def current(self) -> list[str]:
        """Those that may run now."""
        return [name for name in self.names if self._phase(name) not in ("Succeeded", "Failed")]

    def _phase(self, name: str) -> str:
        return str((self._at.api.get(f"{self._at.jobs}/{name}") or {}).get("status", {}).get("phase", ""))

    def _run(self, ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                for _ in range(_BESIDE - len(self.current())):
                    name = f"batch-{self._label}-{len(self.names)}"
                    self._at.create(a_slow_batch(name, self._at.volume, repeat=_REPEAT, maxAttempts=20, tolerations=TOLERATIONS))
                    self.names.append(name)
            except Exception:  # noqa: BLE001 -- the API server is away: it is asked again
                ended.wait(1.0)
            ended.wait(0.5)


def play(at: Stage, story: Story, seed: int) -> Round:
    """Play one story under load, let the cluster heal, and judge."""
    found = Round(seed, faults=len(story))
    label = f"{seed % 10_000}-{len(story)}-{int(time.time()) % 100_000}"
    batches = Batches(at, label)
    faults = Faults(at, batches.current)
    told: list[Told] = []
    settle(at)
    begun, mark = time.monotonic(), at.layout.audit_log.stat().st_size
    claims = Claims(at)
    plan = at.plan(SERVICE, _LONGEST_SECONDS, label)
    with calling(at, plan), claims.held(), batches.running():
        time.sleep(3.0)
        for fault in story:
            told.append(faults.do(fault))
            say(f"  {_clock(told[-1].begun)} {fault} ({told[-1].whom})")
        time.sleep(5.0)
        restore()
        settle(at)
        time.sleep(3.0)
    answers = read(Path(plan.result))
    found.asked, found.failed = len(answers), sum(answer.status != 200 for answer in answers)
    _judge_batches(at, batches, found)
    lines = since(at.layout.audit_log, mark)
    away = [(one.begun, one.ended) for one in told if one.fault.kind is Kind.API_AWAY]
    unexcused = lost(answers, told, blind(watches(lines), [begun for begun, _ in away], time.time()))
    found.wrong += [f"{len(unexcused)} requests were lost"] if unexcused else []
    found.wrong += [f"{_clock(answer.time)} a request got {answer.status} {nearest(answer, told)}" for answer in unexcused[:5]]
    requests = parse(lines)
    held = [(one.begun, one.ended) for one in told if one.fault.kind in HOLDS_PACKETS]
    found.wrong += charges(requests, at.kube.namespace, faults=len(story), jobs=len(batches.names), held=held, away=away)
    found.wrong += claims.wrong[:5]
    found.claims, found.requests = claims.looks, len(requests)
    _judge_leaks(at, batches, found)
    found.seconds = round(time.monotonic() - begun, 1)
    return found


def _clock(seconds: float) -> str:
    """A time of day, as logs tell it."""
    return time.strftime("%T", time.localtime(seconds))


def _judge_batches(at: Stage, batches: Batches, found: Round) -> None:
    """Each succeeds, and has each item once, in its place and right."""
    truth = truth_of_slow_batches(at.volume, repeat=_REPEAT)
    for name in batches.names:
        try:
            at.kube.wait(name, "Succeeded", seconds=_HEAL_SECONDS)
        except (AssertionError, RuntimeError) as error:
            found.wrong.append(f"{name} has not succeeded: {error}"[:400])
            continue
        where = at.volume / "out" / name
        chunks = json.loads((where / "manifest.json").read_text())["chunks"]
        if problem := gaps([(chunk["start"], chunk["end"]) for chunk in chunks], len(truth)):
            found.wrong.append(f"{name}: {problem}")
            continue
        answers = np.concatenate([next(iter(np.load(where / chunk["file"]).values())) for chunk in chunks])
        wrong = int((~np.isclose(answers, truth, atol=1e-5).all(axis=1)).sum())
        found.wrong += [f"{name}: {wrong} answers are wrong"] if wrong else []
        found.batches += 1
        found.items += len(answers)


def _judge_leaks(at: Stage, batches: Batches, found: Round) -> None:
    """Nothing holds a place that has none to do, and the status says how many workers answer."""

    def held() -> list[str]:
        pods = [pod for name in batches.names for pod in at.workers(name)]
        return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") in ("Pending", "Running")]

    def told() -> tuple[int, int]:
        status = at.kube.get("ij", SERVICE)["status"]
        return status.get("replicas", 0), status.get("readyReplicas", 0)

    for what, holds in (("a worker of an ended batch runs on", lambda: not held()), ("status", lambda: told() == (2, 2))):
        try:
            wait_for(holds, what, seconds=60)
        except RuntimeError:
            found.wrong.append(f"{what}: workers {held()}, replicas {told()}")
    for name in batches.names:
        at.kube.delete("inferencejob", name, "--wait=false")


def _shortest(at: Stage, story: Story, seed: int, tries: int) -> Story:
    return shrunk(story, lambda shorter: bool(play(at, shorter, seed).wrong), tries=tries)


def main() -> int:
    """Play rounds until so many faults were done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--tries", type=int, default=0, help="stories that are played to shrink one that failed")
    given = parser.parse_args()
    kept = ROOT / "build" / "chaos" / f"{given.seed}.json"
    rounds: list[dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else []
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder), plain=False) as at, small(output_of(at.volume)):
        while (done := sum(one["faults"] for one in rounds)) < given.faults:
            seed = given.seed * 1000 + len(rounds)
            story = draw(seed, min(_ROUND_FAULTS, given.faults - done))
            say(f"round {len(rounds)}, seed {seed}:")
            found = play(at, story, seed)
            if found.wrong:
                say("\n".join(found.wrong))
                found.wrong += ["the shortest story:", *map(str, _shortest(at, story, seed, given.tries))]
            say(f"  {asdict(found)}")
            rounds.append(asdict(found))
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(rounds, indent=1))
    wrong = [line for one in rounds for line in one["wrong"]]
    sums = {key: sum(one[key] for one in rounds) for key in asdict(Round(0)) if key not in ("seed", "wrong")}
    say(json.dumps({"seed": given.seed, **sums, "wrong": wrong}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
