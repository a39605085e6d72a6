"""TLS on a port of the worker: handshakes, bounded in time and number, by the newest certificate; then the protocol as without.

The port takes connections itself, so that each handshake has the context of its instant. A certificate or CA that is replaced
counts for the next handshake, and ends no connection. A context can't forget a CA, which is why there is a new one each time.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 5.0
HANDSHAKES = 512
"""Handshakes under way. Whoever comes next takes the place of the oldest: that is one that its caller doesn't go on with."""

TLS_CONNECTION_BYTES = 44 << 10
"""What an idle connection takes of the worker's memory (docs/measurements.md); one without TLS takes a thirtieth of that."""

_SHUTDOWN_SECONDS = 2.0
_PAUSE_SECONDS = 0.05
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of 1.3 are all good."""


@dataclass(frozen=True, slots=True)
class Material:
    """What a port shows and asks for, in PEM. `clients` are CAs of callers' certificates; empty where none are asked for."""

    chain: str
    key: str = field(repr=False)
    clients: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who has shaken hands. `certificate` is verified, in the form of `ssl.SSLSocket.getpeercert`; None where none was shown."""

    certificate: dict[str, object] | None


Chooser = Callable[[Caller], asyncio.Protocol | None]
"""What speaks with a caller; None for one that is refused."""


def server_context(material: Material, protocol: str, *, required: bool = False) -> ssl.SSLContext:
    """Return a context. `protocol` is what ALPN may agree on; `required` refuses callers without a certificate.

    Raises ssl.SSLError and ValueError for what is no certificate, or not the key's.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([protocol])
    load_chain(context, material.chain, material.key)
    if material.clients:
        context.load_verify_locations(cadata=material.clients)
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        # A resumed session shows no certificate: it would outlive the CA that it was good for.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    elif required:
        raise ValueError("no CA of callers' certificates")
    return context


def load_chain(context: ssl.SSLContext, chain: str, key: str) -> None:
    """Give a context a certificate. The ssl module reads files only: this one is in memory, and has no name."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{chain}\n{key}\n")
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")


class TlsPort:
    """A listening port that speaks TLS once it has a certificate; until then it closes what comes."""

    def __init__(self, listening: socket.socket, protocol: str, choose: Chooser, *, required: bool = False) -> None:
        """`choose` is asked once a caller has shaken hands; the rest is as in `server_context`."""
        listening.setblocking(False)
        self._socket = listening
        self._protocol = protocol
        self._choose = choose
        self._required = required
        self._context: ssl.SSLContext | None = None
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    @property
    def under_way(self) -> int:
        """Handshakes that have begun and not ended."""
        return len(self._handshakes)

    def use(self, material: Material) -> None:
        """Show this from the next handshake on. Raises what `server_context` does, and then goes on with what there was."""
        self._context = server_context(material, self._protocol, required=self._required)

    def close(self) -> None:
        """Take no new connections; handshakes under way end with those who wait for them."""
        self._accepting.cancel()
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                # No descriptor is left: those who go give some back.
                log.warning("a connection can't be taken: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._begin(accepted)

    def _begin(self, accepted: socket.socket) -> None:
        if self._context is None:
            accepted.close()
            return
        if len(self._handshakes) >= HANDSHAKES:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._shake_hands(accepted, self._context))
        self._handshakes[task] = None
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _shake_hands(self, accepted: socket.socket, context: ssl.SSLContext) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Beginning(self._choose),
                accepted,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except (OSError, ValueError) as error:
            log.debug("a handshake failed: %s", error)


class _Beginning(asyncio.Protocol):
    """A connection in the instant in which its caller has shaken hands: what speaks with it is chosen here."""

    def __init__(self, choose: Chooser) -> None:
        self._choose = choose

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        certificate = transport.get_extra_info("peercert")
        chosen = self._choose(Caller(certificate or None))
        # uvloop's transports do not derive from asyncio's, so only the type checker can be told.
        connection = cast(asyncio.Transport, transport)
        if chosen is None:
            connection.abort()
            return
        connection.set_protocol(chosen)
        chosen.connection_made(connection)
