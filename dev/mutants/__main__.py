"""`python -m dev.mutants [--sample N] [--seed S] [--minutes M] [PATTERN ...]`: put faults in, see which no test notices.

A sample is made of names and the seed alone: a mutant stays in it while others come and go. What is known already is not tried
again, so a run that was cut off goes on. Patterns match the names of mutants as the shell would: `*.scheduling.filters:*`.
"""

import argparse
import hashlib
import queue
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from dev.console import run_main, say
from dev.mutants.ledger import Entry, Harmless, Ledger, digest
from dev.mutants.mutate import Mutant
from dev.mutants.packages import PACKAGES, ROOT, Package
from dev.mutants.selection import Recorded, selected, words_of
from dev.mutants.table import survivors, table
from dev.mutants.trial import Tree

_HOME = ROOT / "build" / "mutants"
# Tests over a mutant take about as long as without it; one that takes so many times as long will not end.
_PATIENCE = 3.0
_LEAST_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mutant that may be tried."""

    package: Package
    path: Path
    mutant: Mutant


def main() -> int:
    """Try what is chosen; print the table and the survivors. The exit code says only whether this could be done."""
    arguments = _parser().parse_args()
    harmless, ledger = Harmless.read(), Ledger(arguments.results)
    chosen, left_out = _chosen(arguments, harmless)
    if arguments.list:
        print("\n".join(f"{one.path.relative_to(ROOT)}:{one.mutant.line} {one.mutant.name}" for one in chosen))
        return 0
    todo = [one for one in chosen if ledger.find(one.mutant) is None]
    say(f"{len(chosen)} mutants, {len(todo)} of them to try")
    _try_all(todo, ledger, arguments)
    entries = [entry for one in chosen if (entry := ledger.find(one.mutant)) is not None]
    print("\n".join([*table([package.name for package in PACKAGES], entries, left_out), "", *survivors(entries)]))
    if len(entries) < len(chosen):
        print(f"\n{len(chosen) - len(entries)} are still to be tried: the same command goes on")
    if not arguments.patterns and (idle := sorted(harmless.patterns.keys() - harmless.used)):
        print(f"\nharmless.txt names what is no mutant any more: {', '.join(idle)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dev.mutants", description=__doc__)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    parser.add_argument("--sample", type=int, default=0, help="how many of all; 0 is every one")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after so long")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=_HOME / "results.jsonl")
    parser.add_argument("--list", action="store_true", help="only say which")
    return parser


def _chosen(arguments: argparse.Namespace, harmless: Harmless) -> tuple[list[Candidate], Counter[str]]:
    """The sample in the order in which it is tried, and how many of each package are harmless.

    The order is the seed's: a run that ends early has tried a smaller sample of all packages.
    """
    found = [Candidate(package, path, mutant) for package in PACKAGES for path, mutant in package.mutants()]
    if arguments.patterns:
        found = [one for one in found if any(fnmatchcase(one.mutant.name, pattern) for pattern in arguments.patterns)]
    found.sort(key=lambda one: hashlib.sha256(f"{arguments.seed} {one.mutant.name}".encode()).digest())
    spared = {one.mutant.name for one in found if harmless.why(one.mutant.name) is not None}
    sample = found[: arguments.sample or None]
    left_out = Counter(one.package.name for one in sample if one.mutant.name in spared)
    return [one for one in sample if one.mutant.name not in spared], left_out


def _try_all(todo: Sequence[Candidate], ledger: Ledger, arguments: argparse.Namespace) -> None:
    """Try one after the other in each of the trees, and write down each at once."""
    if not todo:
        return
    give_up = time.monotonic() + 60 * arguments.minutes
    made = [Tree.make(_HOME / f"tree-{number}") for number in range(arguments.processes)]
    recorded = made[0].record(sorted({tests for one in todo for tests in one.package.tests}))
    words = words_of(ROOT)
    trees: queue.Queue[Tree] = queue.Queue()
    for tree in made:
        trees.put(tree)

    def attempt(one: Candidate) -> None:
        if time.monotonic() < give_up:
            entry = _try(one, trees, selected(one.mutant, recorded, one.package.tests, words))
            ledger.add(entry)
            say(f"  {entry.outcome:8} {entry.seconds:5.1f} s  {entry.name}")

    with ThreadPoolExecutor(len(made)) as pool:
        trials = [pool.submit(attempt, one) for one in todo]
        try:
            for trial in trials:
                trial.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _try(one: Candidate, trees: "queue.Queue[Tree]", tests: Sequence[Recorded]) -> Entry:
    """What these tests made of a mutant."""
    limit = max(_LEAST_SECONDS, _PATIENCE * sum(test.seconds for test in tests))
    tree = trees.get()
    try:
        with tree.changed(one.path, one.mutant.source):
            verdict = tree.test(tests, seconds=limit)
    finally:
        trees.put(tree)
    place = f"{one.path.relative_to(ROOT)}:{one.mutant.line}"
    change = one.mutant.before, one.mutant.after, digest(one.mutant)
    return Entry(one.mutant.name, one.package.name, place, *change, verdict.outcome, round(verdict.seconds, 1), verdict.why)


if __name__ == "__main__":
    run_main(main)
