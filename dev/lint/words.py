"""`python3 -m dev.lint.words [PATH...]`: find words that the project has retired, and name the word to use.

One word has one meaning here, and it is the field's word (docs/adr/0014-one-folder-per-duty.md). The table says which word took
the place of which. A word without other meanings is looked for everywhere; a word with other meanings only where it had ours.
ALLOWED names the lines that may keep a word, with the reason.

Each finding is one line, `FILE:LINE: WORD -> use WORD`, and any finding makes the exit status 1. Line 0 is the file's own name.
"""

import argparse
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from dev.console import DevError, run_main

ROOT = Path(__file__).resolve().parents[2]

# What is read, beside the pages in the root.
FOLDERS = ("operator", "worker-image", "protocol", "client", "tests", "bench", "dev", "docs", "charts", "examples")
SUFFIXES = frozenset({".py", ".md", ".yaml", ".tpl", ".txt", ".trace"})
# What tools leave behind, and what others have written.
SKIPPED = frozenset({"__pycache__", "build", "schemas"})

# In these globs `*` matches `/` too.
OPERATOR = ("operator/*",)
SCHEDULING = ("operator/*/scheduling/*", "operator/*/controllers/scheduling_loop.py", "tests/unit/scheduling/*")
SCHEDULED = (*SCHEDULING, "operator/*/jobs/*", "operator/*/warmpools/*", "operator/*/state/task_index.py")
LOAD = ("operator/*", "tests/unit/autoscaling/*", "tests/unit/metering/*")
WORKER = ("worker-image/*", "tests/unit/worker/*")
BATCH = ("worker-image/*/batch/*", "tests/unit/worker/batch/*")
OUTPUT = (*BATCH, "tests/process/*", "examples/demo/*", "docs/tasks/batch.md", "docs/architecture.md")
BENCH = ("bench/*", "tests/unit/bench/*", "docs/measurements.md")
PLANS = (
    *SCHEDULED,
    "tests/simulation/*",
    "tests/unit/shadow/*",
    "bench/scheduling/*",
    "bench/learned/*",
    "docs/*.md",
    "CHANGELOG.md",
)


def within(*words: str) -> str:
    """A regex for these words, alone or in an identifier: `tenure`, `_tenures`, `TENURE`, `ofTenure`, `tenure_2`."""
    either = "|".join(words)
    capital, upper = "|".join(word.capitalize() for word in words), "|".join(word.upper() for word in words)
    return rf"(?<![A-Za-z])(?:{either})(?![a-z])|(?:{capital})(?![a-z])|(?<![A-Z])(?:{upper})(?![A-Z])"


def beginning(*stems: str) -> str:
    """A regex for all words that begin so: `evict` finds `evicted`, `EVICTIONS` and `podEviction`."""
    return within(*(rf"{stem}[a-z]*" for stem in stems))


def named(*names: str) -> str:
    """A regex for classes of these names, where they are made, called, or stand as a type."""
    either = "|".join(names)
    return rf"\bclass (?:{either})\b|(?::|->|\||\[) ?(?:{either})\b(?![\w.])|(?<![\w.])(?:{either})\("


def noun(word: str) -> str:
    """A regex for a word that is also a verb, as a noun: behind an article or its like, or in the genitive."""
    singular = "an?|the|each|every|one|no|other|another|old|new|newest|this|its|whose"
    plural = "the|all|other|old|new|these|its|whose|some"
    return rf"(?i:\b(?:{singular}) {word}\b|\b(?:{plural}) {word}s\b|\b{word}'s\b)"


@dataclass(frozen=True)
class Retired:
    """A retired word: `regex` finds it, in lines that have a `stem` in any case, in files that a glob of `where` matches."""

    use: str
    regex: str
    stems: tuple[str, ...]
    where: tuple[str, ...] = ("*",)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The regex, compiled."""
        return re.compile(self.regex)


WORDS = (
    # Scheduling.
    Retired("RunningWork", beginning("tenure"), ("tenure",)),
    Retired("RunningWork", named("Held"), ("held",), OPERATOR),
    Retired("timeline", within("lanes?"), ("lane",), PLANS),
    Retired("timeline, or to schedule ahead", within("look-?aheads?"), ("lookahead", "look-ahead")),
    Retired("SchedulingUnit", named("Work"), ("work",), OPERATOR),
    Retired("NodeCapacity", within("boards?"), ("board",), SCHEDULING),
    Retired("NodeInfo", rf"{named('Slot')}|\b(?:self|capacity)\.slots\b|\bslots: Iter|\bin slots\b", ("slot",), SCHEDULING),
    Retired("PodRequirements", within("shapes?"), ("shape",), SCHEDULED),
    Retired("PlacementRequest", named("Needs?"), ("need",), OPERATOR),
    Retired("request", noun("need"), ("need",), SCHEDULED),
    Retired("Decision", f"{named('Answer')}|{noun('answer')}", ("answer",), SCHEDULING),
    Retired("PendingReason", within("obstacles?"), ("obstacle",)),
    Retired("Explanation", within("grounds"), ("grounds",)),
    Retired("preempt, preemption", beginning("evict"), ("evict",)),
    Retired("delay weight", within("haste"), ("haste",)),
    # Jobs and workers.
    Retired("JobState", within("standings?"), ("standing",), OPERATOR),
    Retired("condition", within("findings?"), ("finding",), OPERATOR),
    Retired("CreateFailure", within("setbacks?"), ("setback",)),
    Retired("pod problem, or problem", beginning("trouble"), ("trouble",)),
    Retired("hosted task", within("lodg(?:e|es|ed|er|ers|ing|ings)"), ("lodg",)),
    Retired("co-located model, or hosted task", within("guests?"), ("guest",)),
    Retired("warm worker", within("hosts?"), ("host",), SCHEDULED),
    Retired("TaskKeySecret", within("vaults?"), ("vault",)),
    # The view of the cluster.
    Retired("unmanaged usage", within("strangers?"), ("stranger",)),
    Retired("orphaned task", within("strays?"), ("stray",)),
    Retired("tombstone", within("graves?"), ("grave",)),
    Retired("stale object", within("ghosts?"), ("ghost",)),
    Retired("drop (a stale object)", within("bury", "buried", "burials?"), ("bury", "buri")),
    Retired("informer handlers", within("intakes?"), ("intake",)),
    Retired("TaskClient", named("Hands"), ("hands",), OPERATOR),
    Retired("StateCache", named("Memory"), ("memory",), OPERATOR),
    # Autoscaling.
    Retired("recommend, recommendation", beginning("steer"), ("steer",)),
    Retired("interval", within("ticks?"), ("tick",), LOAD),
    Retired("ScalingMetrics", f"{named('Measures?')}|{noun('measure')}", ("measure",), LOAD),
    # The worker.
    Retired("WorkerState", named("Life"), ("life",), WORKER),
    Retired("Listeners", within("fronts"), ("fronts",), WORKER),
    Retired("segment, or the chunk of an output", within("blocks?"), ("block",), BATCH),
    Retired("chunk", noun("part"), ("part",), OUTPUT),
    Retired("chunk", r"(?i)\b(?:un)?committed parts?\b|\bpart by part\b", ("part",)),
    # Benchmarks.
    Retired("simulated kubelets", within("players?"), ("player",), BENCH),
    Retired("scenario", within("cells?"), ("cell",), BENCH),
    Retired("target", within("bars?"), ("bar",), BENCH),
    # Folders that have moved.
    Retired(
        "the path of today",
        r"inference_operator[./](?:controller|decisions|domain|effects|manifests)\b"
        r"|(?<![\w/.-])(?:decisions|domain|effects|kedascaler|custommetrics)/",
        ("inference_operator", "decisions/", "domain/", "effects/", "kedascaler/", "custommetrics/"),
    ),
)


@dataclass(frozen=True)
class Allowed:
    """Lines of the files `where` that match `line` may have `word` (a regex for what was found)."""

    word: str
    where: str
    why: str
    line: str = ""


ALLOWED = (
    Allowed("", "dev/lint/words.py", "the table itself"),
    Allowed("", "tests/unit/dev/test_words.py", "plants words in order to find them"),
    Allowed("", "docs/adr/0014-*", "says which word took the place of which"),
    Allowed("", "docs/concepts/glossary.md", "says which word took the place of which"),
    Allowed("^(evictions|guests|steering)$", "CHANGELOG.md", "tells users which name is new", " is .|preemptions_total"),
    Allowed("^evict", "dev/cluster/node_config.py", "the kubelet's own setting and verb"),
    Allowed("^evict", "*", "an annotation of the cluster autoscaler", "safe-to-evict"),
    Allowed("^Evict", "*", "a field of PodDisruptionBudgets", "unhealthyPodEvictionPolicy"),
    Allowed("^evict", "docs/*", "Kubernetes' own, by another API", "isn't an eviction|Kubernetes evicts|its pods are evicted"),
    Allowed("^evict", "tests/cluster/test_rbac.py", "the API's subresource pods/eviction", '"pods", "eviction"'),
    Allowed("^evict", "tests/unit/workers/*", "what the kubelet does to a pod", "PodProblem|troubled|its (node|worker)"),
    Allowed("^evict", "*", "what a cache does with entries, as other caches' metrics name it", "cache_evictions"),
    Allowed("^(?i:evict)", "operator/*/queueing/*", "what Kueue does to a Workload, by its own name"),
    Allowed("^(?i:evict)", "operator/*/state/kueue.py", "the same"),
    Allowed("^(?i:evict)", "operator/*/jobs/queued.py", "the same"),
    Allowed("^(?i:evict)", "operator/*/jobs/batch.py", "the same", "Evicted|by Kueue"),
    Allowed("^(?i:evict)", "tests/*kueue*.py", "the same"),
    Allowed("^(?i:evict)", "tests/unit/queueing/*", "the same"),
    Allowed("^(?i:evict)", "tests/unit/jobs/test_queued.py", "the same"),
    Allowed("^(?i:evict)", "docs/*kueue*", "the same"),
    Allowed("^Evicted$", "*", "the reason that the kubelet gives", '"Evicted"'),
    Allowed("^(?i:troubleshoot)", "*", "the field's word for finding a fault, and a page's name"),
    Allowed("^HOST$", "operator/*/warmpools/model_status.py", "a host of the network", "HOST_FORBIDDEN"),
    Allowed("^lane$", "docs/*", "the example model", r"lane-|/lane\b|lane net|\(lane\)|^\| lane"),
    Allowed("^cells$", "bench/*table.py", "cells of a table"),
    Allowed("^stranger", "dev/cluster/*", "processes and chains of somebody else on the developer's machine"),
    Allowed("^stranger", "tests/unit/autoscaling/metricsapi/test_server.py", "a client that another authority has signed"),
    Allowed("^stranger", "tests/component/test_watches.py", "the name of a pod that the operator has not made", '"stranger"'),
)


@dataclass(frozen=True)
class Finding:
    """A retired word, as it stands in a line of a file."""

    path: str
    line: int
    word: str
    use: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word} -> use {self.use}"


def findings(root: Path, paths: Iterable[str]) -> Iterator[Finding]:
    """What is found in these files, relative to `root`, in their names too. Raises UnicodeDecodeError for one that is no text."""
    for path in paths:
        rules = [rule for rule in WORDS if _matches(path, rule.where)]
        allowed = [one for one in ALLOWED if fnmatchcase(path, one.where)]
        # The name is a line of its own, in front of the first.
        text = f"{path}\n{(root / path).read_text(encoding='utf-8')}"
        yield from sorted(set(_in_text(path, text, rules, allowed)), key=lambda one: (one.line, one.word))


def _in_text(path: str, text: str, rules: list[Retired], allowed: list[Allowed]) -> Iterator[Finding]:
    lowered = text.lower()
    if len(lowered) != len(text):
        # A letter whose small form is longer would shift all that follows.
        lowered = text
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for rule in rules:
        for number in sorted({bisect_right(starts, at) - 1 for stem in rule.stems for at in _occurrences(stem, lowered)}):
            end = starts[number + 1] - 1 if number + 1 < len(starts) else len(text)
            line = text[starts[number] : end]
            for match in rule.pattern.finditer(line):
                word = match[0].strip(" :|>-[(")
                if not any(re.search(one.word, word) and re.search(one.line, line) for one in allowed):
                    yield Finding(path, number, word, rule.use)


def _occurrences(stem: str, text: str) -> Iterator[int]:
    at = text.find(stem)
    while at >= 0:
        yield at
        at = text.find(stem, at + 1)


def files(root: Path) -> list[str]:
    """Return the files to read, relative to `root`."""
    found = [
        path.relative_to(root).as_posix()
        for top in (*(root / name for name in FOLDERS), *root.glob("*.md"))
        for path in ([top] if top.is_file() else top.rglob("*"))
        if path.suffix in SUFFIXES and not SKIPPED & set(path.parts) and path.is_file()
    ]
    return sorted(found)


def _matches(path: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(path, glob) for glob in globs)


def main() -> int:
    """Print what is found; 1 when anything is."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.lint.words", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files or folders below the root; without any, all of it")
    arguments = parser.parse_args()
    chosen = [Path(path).resolve() for path in arguments.paths]
    if outside := [path for path in chosen if not path.is_relative_to(ROOT)]:
        raise DevError(f"{outside[0]} is not in this checkout")
    paths = files(ROOT)
    if chosen:
        paths = [path for path in paths if any((ROOT / path).is_relative_to(one) for one in chosen)]
    found = list(findings(ROOT, paths))
    for one in found:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    run_main(main)
