"""Ports and addresses of loopback that belong to this process alone, also where several run tests side by side."""

import fcntl
import itertools
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Which of pytest-xdist's processes this is.
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
# The kernel takes ports of outgoing connections from above: between a look at a port and its use, one of these may take it.
_LOWEST_PORT, _PORTS = 12_000, 2_000
_NETS = 84
# One byte of this file is one port: the kernel gives a lock to one process, and frees it with that process. Without it, two runs that
# find the same port free both use it.
_CLAIMS = (Path(tempfile.gettempdir()) / f"inference-operator-ports-{os.getuid()}").open("ab")
# The bytes after those of all ports are networks.
_FIRST_NET = 1 << 16
# Another run of the tests on this machine begins elsewhere.
_START = random.randrange(_PORTS)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    return list(itertools.islice(_found, count))


def address(host: int) -> str:
    """An address of this process's own network, by its last number: 1 to 254."""
    return f"{_net()}.{host}"


@cache
def _net() -> str:
    """The first three numbers of a network that no other run has claimed, and where nothing listens that one has left behind."""
    there = {tuple(bytes.fromhex(line.split()[1][:8])[:0:-1]) for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
    for number in range(_START, _START + 250):
        net = (127, _NETS + _PROCESS, 1 + number % 250)
        if net not in there and _is_claimed(_FIRST_NET + net[1] * 256 + net[2]):
            return ".".join(map(str, net))
    raise RuntimeError("all networks of loopback for tests are taken; end what earlier runs have left behind")


def _search() -> Iterator[int]:
    first = _LOWEST_PORT + _PROCESS * _PORTS
    for number in itertools.count(_START):
        port = first + number % _PORTS
        if _is_claimed(port) and _is_free(port):
            yield port


def _is_claimed(byte: int) -> bool:
    """Claim a port or a network until this process ends; whether no other process has it."""
    try:
        fcntl.lockf(_CLAIMS, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            # On all addresses, as a worker listens.
            probe.bind(("", port))
        except OSError:
            return False
    return True


_found = _search()
