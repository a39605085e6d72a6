"""Connections on their way from the worker, which accepts them, to the frontend that serves them (unix(7), SCM_RIGHTS).

The worker accepts, and gives each to the frontend that has fewest. A socket that several processes listen on would be served by
whichever wakes first, which takes all that wait: sixteen callers over gRPC may all come to one.
"""

import enum
import socket


class Kind(enum.IntEnum):
    """What a connection speaks."""

    HTTP = 0
    GRPC = 1


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of a way for connections."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(way: socket.socket, kind: Kind, connection: socket.socket) -> bool:
    """Hand a connection over; whether the other side has room for it."""
    try:
        socket.send_fds(way, [bytes([kind])], [connection.fileno()])
    except OSError:
        return False
    return True


def receive(way: socket.socket) -> tuple[Kind, socket.socket | None] | None:
    """The next connection; None while there is none, and at the end.

    No socket where this process may open no further file: the kernel has closed the connection then.
    """
    try:
        kind, files, _, _ = socket.recv_fds(way, 1, 1)
    except OSError:
        return None
    if not kind:
        return None
    if not files:
        return Kind(kind[0]), None
    connection = socket.socket(fileno=files[0])
    connection.setblocking(False)
    return Kind(kind[0]), connection
