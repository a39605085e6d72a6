"""Ports that tests give to what they start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Both look from the same port on, and keep what they found until told to end.
RUN = """
import sys
from tests import loopback
loopback._START = 7
print(*loopback.free_ports(20), flush=True)
sys.stdin.read()
"""


def test_two_runs_side_by_side_share_no_port() -> None:
    command = [sys.executable, "-c", RUN]
    runs = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = []
    for run in runs:
        assert run.stdout is not None
        found.append(set(run.stdout.readline().split()))
    for run in runs:
        run.communicate()

    assert [len(ports) for ports in found] == [20, 20]
    assert not found[0] & found[1]
