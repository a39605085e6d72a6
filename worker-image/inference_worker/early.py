"""The health port, and an end when told, before anything that takes time to import.

Python and the runtime take a second, more on a busy node. A probe that comes meanwhile waits in the backlog; without a listener it
would be refused, and each refusal is a warning event. A signal to stop would be ignored, since the kernel keeps those from pid 1
that it has no handler for, and its place held for all of its grace. Imports the standard library alone.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Mapping

HEALTH_PORT_VARIABLE, ADDRESS_VARIABLE = "INFERENCE_HEALTH_PORT", "INFERENCE_ADDRESS"
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104
# `inference_protocol.messages` has the same, and takes a tenth of a second to import; a test compares them.
DEFAULT_HEALTH_PORT = 8002
BACKLOG = 4096
REPORT_VARIABLE, REPORT_PATH = "INFERENCE_TERMINATION_PATH", "/dev/termination-log"
# A TerminationReport, as `inference_protocol.messages` has it.
_LAST_WORDS = b'{"outcome":"Drained","message":"told to stop before it had started"}'


def end_when_told(environment: Mapping[str, str] = os.environ) -> None:
    """End at once when told to stop, until the program has handlers of its own."""

    def end(_number: int, _frame: object) -> None:
        with contextlib.suppress(OSError):
            os.write(os.open(environment.get(REPORT_VARIABLE, REPORT_PATH), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), _LAST_WORDS)
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def open_port(environment: Mapping[str, str] = os.environ) -> socket.socket | None:
    """Return the listening socket; None where it can't be had, of which the program itself tells later."""
    try:
        address = environment.get(ADDRESS_VARIABLE, ALL_ADDRESSES), int(environment.get(HEALTH_PORT_VARIABLE, DEFAULT_HEALTH_PORT))
        return socket.create_server(address, backlog=BACKLOG)
    except (OSError, ValueError):
        return None
