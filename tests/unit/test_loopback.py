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
print(*loopback.free_ports(20), loopback.address(1), flush=True)
sys.stdin.read()
"""

# Of one run after another.
NET = """
{before}
from tests import loopback
loopback._START = 8
print(loopback.address(1))
"""


def test_two_runs_side_by_side_share_no_port_and_no_address() -> None:
    command = [sys.executable, "-c", RUN]
    runs = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = []
    for run in runs:
        assert run.stdout is not None
        found.append(set(run.stdout.readline().split()))
    for run in runs:
        run.communicate()

    assert [len(each) for each in found] == [21, 21]
    assert not found[0] & found[1]


def test_a_network_where_something_was_left_behind_is_passed_over() -> None:
    """A worker that a test had not ended kept its address from the tests after it."""
    left = subprocess.run(
        [sys.executable, "-c", NET.format(before="")], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    listen = f'import socket; there = socket.create_server(("{left.strip()}", 0))'
    found = subprocess.run(
        [sys.executable, "-c", NET.format(before=listen)], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert found and found != left
