"""The health port, opened before anything that takes time to import.

Python and the runtime take a second, more on a busy node. A probe that comes meanwhile waits in the backlog; without a listener it
would be refused, and each refusal is a warning event. Imports the standard library alone.
"""

import os
import socket
from collections.abc import Mapping

HEALTH_PORT_VARIABLE, ADDRESS_VARIABLE = "INFERENCE_HEALTH_PORT", "INFERENCE_ADDRESS"
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104
# `inference_protocol.messages` has the same, and takes a tenth of a second to import; a test compares them.
DEFAULT_HEALTH_PORT = 8002
BACKLOG = 4096


def open_port(environment: Mapping[str, str] = os.environ) -> socket.socket | None:
    """Return the listening socket; None where it can't be had, of which the program itself tells later."""
    try:
        address = environment.get(ADDRESS_VARIABLE, ALL_ADDRESSES), int(environment.get(HEALTH_PORT_VARIABLE, DEFAULT_HEALTH_PORT))
        return socket.create_server(address, backlog=BACKLOG)
    except (OSError, ValueError):
        return None
