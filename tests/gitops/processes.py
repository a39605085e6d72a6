"""The end of a process that a test has started."""

from __future__ import annotations

import subprocess


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, and end it when it doesn't."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
