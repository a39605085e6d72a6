"""Processes under measurement: started on one core, read from /proc, and always ended, whatever they started themselves."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.proc import birth, cpu_seconds, stat

# Core 0 is the server's alone, core 1 the client's: on one core they would measure each other.
SERVER_CORE, CLIENT_CORE = 0, 1
_MARK = "INFERENCE_BENCH_WORKER"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_PATIENCE_SECONDS = 8.0


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Started:
    """A process with all its descendants. `begun` is time.monotonic() just before exec."""

    process: subprocess.Popen[bytes]
    log: Path
    begun: float

    @property
    def running(self) -> bool:
        """Whether the first process is still there."""
        return self.process.poll() is None

    @property
    def cpu_seconds(self) -> float:
        """User and system time of the whole tree so far, with children that have ended."""
        return sum(cpu_seconds(pid) for pid in self.tree())

    def memory_mib(self) -> tuple[float, float]:
        """Resident MiB of the tree: plainly added up, and with shared pages counted once."""
        resident = proportional = 0.0
        for pid in self.tree():
            with contextlib.suppress(OSError, IndexError, ValueError):
                resident += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                proportional += next(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
        return resident / (1 << 20), proportional / (1 << 20)

    def tree(self) -> list[int]:
        """The process and its descendants."""
        children: dict[int, list[int]] = {}
        for pid, parent in _parents():
            children.setdefault(parent, []).append(pid)
        found, waiting = [], [self.process.pid]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            waiting += children.get(pid, [])
        return found

    def tail(self, size: int = 1500) -> str:
        """The end of what it logged."""
        return self.log.read_text(errors="replace")[-size:]


@contextmanager
def started(command: list[str], *, log: Path, core: int, environment: Mapping[str, str], folder: Path) -> Iterator[Started]:
    """Run a command bound to a core, and end it with everything that it started."""
    variables = {**os.environ, _MARK: str(os.getpid()), **environment}
    with log.open("wb") as out:
        begun = time.monotonic()
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *command],
            env=variables,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 -- this program has one thread when it starts others
        )
    running = Started(process, log, begun)
    try:
        yield running
    finally:
        _end(running)


def _end(running: Started) -> None:
    tree = {pid: birth(pid) for pid in running.tree()}
    running.process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.process.wait(_PATIENCE_SECONDS)
    for pid, born in tree.items():
        # A number may be another process's by now; its birth tells.
        if born is not None and birth(pid) == born:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    running.process.wait()


def end_leftovers() -> None:
    """End what an earlier run of this benchmark left when it was killed: only processes that carry its mark."""
    for pid, _ in _parents():
        with contextlib.suppress(OSError):
            marks = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if pid != os.getpid() and any(mark.startswith(f"{_MARK}=".encode()) for mark in marks):
                os.kill(pid, signal.SIGKILL)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):  # noqa: PTH208 -- this is asked often, and paths cost more than the read
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                yield int(entry), int(stat(int(entry))[1])
