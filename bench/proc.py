"""What /proc says of a process: CPU time, memory, and whether it is still the same one; and its end."""

import os
import subprocess
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name. Raises OSError when the process is gone."""
    # The name stands in brackets and may hold anything, brackets too.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def cpu_seconds(pid: int) -> float:
    """User and system time so far, with that of children that have ended; zero when it is gone."""
    try:
        return sum(map(int, stat(pid)[11:15])) / _TICK
    except (OSError, IndexError):
        return 0.0


def birth(pid: int) -> str | None:
    """When it was started: tells it from a later process of the same number."""
    try:
        return stat(pid)[19]
    except (OSError, IndexError):
        return None


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident now, and at its peak. Raises OSError when the process is gone."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    table = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(table["VmRSS"]) / 1024, int(table["VmHWM"]) / 1024


def end(process: "subprocess.Popen[bytes]", seconds: float = 10.0) -> None:
    """Ask a process to end, and end it when it has not after so many seconds."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
