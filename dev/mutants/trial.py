"""One mutant's trial: the tests over a copy of the tree in which its module is changed."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from dev.console import DevError, heartbeat
from dev.mutants.packages import ROOT
from dev.mutants.recorder import RECORD_TO
from dev.mutants.selection import SELECT_FROM, Recorded, read

# pytest's own: all passed, some failed, and what can't be imported or collected.
_PASSED, _FAILED = 0, (1, 2)
_PATHS = ("operator", "protocol", "worker-image")
_LONGEST_SECONDS = 1800.0
# A mutant may fill the memory of the machine, which others use.
_MEMORY_BYTES = 8 << 30
_BOUNDED = f"""\
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY_BYTES}, {_MEMORY_BYTES}))
sys.argv[0] = "pytest"
runpy.run_module("pytest", run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests made of it: `survived`, `killed` or `timeout`; and the test that noticed, or pytest's last line."""

    outcome: str
    seconds: float
    why: str


class Tree:
    """A copy of the tree for one trial at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Python takes bytecode of equal time and size for that of the source: each change gets a second of its own.
        self._seconds = count(int(time.time()) - 1_000_000)

    @staticmethod
    def make(folder: Path) -> "Tree":
        """Copy what git knows, as it lies in the checkout."""
        shutil.rmtree(folder, ignore_errors=True)
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.split("\0")):
            source, target = ROOT / name, folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        return Tree(folder)

    @contextmanager
    def changed(self, path: Path, source: str) -> Iterator[None]:
        """Have a module, by its path in the checkout, read otherwise."""
        target = self.folder / path.relative_to(ROOT)
        before = target.read_text()
        self._write(target, source)
        try:
            yield
        finally:
            self._write(target, before)

    def _write(self, target: Path, text: str) -> None:
        target.write_text(text)
        second = next(self._seconds)
        os.utime(target, (second, second))

    def record(self, tests: Sequence[str]) -> list[Recorded]:
        """Run all tests without a mutant, and tell what each runs. Raises DevError when one fails."""
        file = self.folder / ".mutants-recorded.json"
        with heartbeat("the tests without a mutant"):
            plugin = ("-p", "dev.mutants.recorder")
            every = [*plugin, "--maxfail=1000000", *tests]
            self._run(every, seconds=_LONGEST_SECONDS, environment={RECORD_TO: str(file)})
        recorded = read(file)
        # A test of the interpreter's own limits fails while its calls are watched.
        verdict = self.test(failed, seconds=_LONGEST_SECONDS) if (failed := [one for one in recorded if one.failed]) else None
        if verdict is not None and verdict.outcome != "survived":
            raise DevError(f"without any mutant: {verdict.outcome}, {verdict.why}")
        return recorded

    def test(self, tests: Sequence[Recorded], *, seconds: float) -> Verdict:
        """Run tests until the first that fails. Raises DevError when they could not be run."""
        if not tests:
            return Verdict("survived", 0.0, "no test runs it")
        file = self.folder / ".mutants-selected.json"
        file.write_text(json.dumps([one.test for one in tests]))
        files = sorted({one.file for one in tests})
        return self._run(["-p", "dev.mutants.selection", *files], seconds=seconds, environment={SELECT_FROM: str(file)})

    def _run(self, arguments: Sequence[str], *, seconds: float, environment: Mapping[str, str]) -> Verdict:
        begun = time.monotonic()
        command = [sys.executable, "-c", _BOUNDED, "-x", "-q", "-p", "no:cacheprovider", "--tb=no", *arguments]
        path = os.pathsep.join(str(self.folder / one) for one in _PATHS)
        settings = {**os.environ, "PYTHONPATH": path, "ORT_DISABLE_TELEMETRY": "1", **environment}
        with subprocess.Popen(
            command, cwd=self.folder, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                said, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                return Verdict("timeout", time.monotonic() - begun, f"{seconds:.0f} s")
            finally:
                _end(process)
        took = time.monotonic() - begun
        if process.returncode == _PASSED:
            return Verdict("survived", took, said.strip().rpartition("\n")[2])
        if process.returncode not in _FAILED:
            raise DevError(f"pytest ended with {process.returncode}:\n{said[-2000:]}")
        return Verdict("killed", took, _first_failure(said))


def _end(process: subprocess.Popen[str]) -> None:
    """A mutant may loop for ever, and so may what it has started."""
    if process.poll() is None:
        os.killpg(process.pid, 9)


def _first_failure(said: str) -> str:
    lines = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].split(" ", 1)[1].partition(" - ")[0] if lines else said.strip().rpartition("\n")[2]
