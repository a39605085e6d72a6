"""Long-running processes that outlive the command that starts them.

A process is known by pid *and* start time: after a crash or a reboot the pid may be a stranger's,
and a stranger is never signalled.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dev.console import DevError

# Components must not inherit proxies, certificates or credentials of the developer's shell.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_STOP_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered about a process."""

    name: str
    pid: int
    start_ticks: int
    argv: tuple[str, ...]


def start_ticks(pid: int) -> int | None:
    """Return the kernel's start time of a running process; None if it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in parentheses and may hold anything; the rest is well-formed.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def is_running(record: Record) -> bool:
    """Tell whether exactly this process still runs."""
    return start_ticks(record.pid) == record.start_ticks


class Processes:
    """The processes of one cluster: start, find and stop them by name."""

    def __init__(self, *, run: Path, logs: Path) -> None:
        self._run = run
        self._logs = logs

    def record(self, name: str) -> Record | None:
        """Return what is remembered about a name."""
        return _read(self._run / f"{name}.json")

    def records(self) -> list[Record]:
        """Return every remembered process."""
        found = (_read(path) for path in sorted(self._run.glob("*.json")))
        return [record for record in found if record is not None]

    def running(self, name: str) -> bool:
        """Tell whether the named process runs."""
        record = self.record(name)
        return record is not None and is_running(record)

    def ensure(self, name: str, argv: Iterable[str], *, env: Mapping[str, str] | None = None) -> bool:
        """Start the process unless it runs with the same command; return whether it was started."""
        command = tuple(argv)
        record = self.record(name)
        if record is not None and is_running(record):
            if record.argv == command:
                return False
            self.stop(name)
        self._start(name, command, env or {})
        return True

    def require(self, name: str) -> None:
        """Raise with the end of the log if the process has ended."""
        if not self.running(name):
            raise DevError(f"{name} ended; its log {self.log(name)} ends with:\n{self.log_tail(name)}")

    def log(self, name: str) -> Path:
        """Return the path of a process's log."""
        return self._logs / f"{name}.log"

    def log_tail(self, name: str, *, lines: int = 15) -> str:
        """Return the last lines of a process's log."""
        try:
            text = self.log(name).read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def signal(self, name: str, number: signal.Signals) -> None:
        """Signal one that runs."""
        if (record := self.record(name)) is not None:
            _signal([record], number)

    def stop(self, *names: str, kill: bool = False) -> None:
        """End the named processes together: SIGTERM, then SIGKILL; forget them afterwards."""
        records = [record for name in names if (record := self.record(name)) is not None]
        if not kill:
            _signal(records, signal.SIGTERM)
            wait_gone(records, seconds=_STOP_GRACE_SECONDS)
        _signal(records, signal.SIGKILL)
        wait_gone(records, seconds=_STOP_GRACE_SECONDS)
        for record in records:
            (self._run / f"{record.name}.json").unlink(missing_ok=True)

    def _start(self, name: str, command: tuple[str, ...], env: Mapping[str, str]) -> None:
        self._run.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": PATH, "HOME": str(Path.home()), **env},
                cwd="/",
                start_new_session=True,
            )
        ticks = start_ticks(process.pid)
        # The child is left to init on purpose; a return code keeps Python from warning about it.
        process.returncode = 0
        if ticks is None:
            raise DevError(f"{name} ended at once:\n{self.log_tail(name)}")
        record = Record(name=name, pid=process.pid, start_ticks=ticks, argv=command)
        scratch = self._run / f".{name}.tmp"
        scratch.write_text(json.dumps(asdict(record)))
        scratch.rename(self._run / f"{name}.json")


def find_by_argument(program: str, argument: str) -> Iterator[Record]:
    """Find processes whose program has that name and that were given that exact argument."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        ticks = start_ticks(pid)
        argv = _command_line(pid)
        if ticks is not None and argv and Path(argv[0]).name == program and argument in argv:
            yield Record(name=program, pid=pid, start_ticks=ticks, argv=argv)


def kill_all(records: Iterable[Record]) -> None:
    """SIGKILL processes and wait until they are gone."""
    doomed = list(records)
    _signal(doomed, signal.SIGKILL)
    wait_gone(doomed, seconds=_STOP_GRACE_SECONDS)


def wait_gone(records: Iterable[Record], *, seconds: float) -> None:
    """Wait until none of the processes runs, or the time is over."""
    waiting = list(records)
    deadline = time.monotonic() + seconds
    while any(is_running(record) for record in waiting) and time.monotonic() < deadline:
        time.sleep(0.02)


def _signal(records: Iterable[Record], number: signal.Signals) -> None:
    for record in records:
        if is_running(record):
            try:
                os.kill(record.pid, number)
            except ProcessLookupError:
                continue


def _command_line(pid: int) -> tuple[str, ...]:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ()
    return tuple(part.decode(errors="replace") for part in raw.split(b"\0")[:-1])


def _read(path: Path) -> Record | None:
    try:
        data = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return Record(data["name"], data["pid"], data["start_ticks"], tuple(data["argv"]))
