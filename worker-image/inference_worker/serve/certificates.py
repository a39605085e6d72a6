"""Keeps the certificates of the worker's ports new: the mounted ones by looking, its own by asking in time."""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inference_protocol.messages import CERTIFICATE_FILE, CLIENT_CA_FILE, JWKS_FILE, KEY_FILE, WorkerConfig
from inference_worker.serve.tls import Material, TlsPort
from inference_worker.threads import in_thread

if TYPE_CHECKING:
    from inference_worker.identity import Issued
    from inference_worker.serve.jwt import Tokens

log = logging.getLogger(__name__)

# The kubelet brings a changed Secret within a minute or so.
_LOOK_SECONDS = 5.0
_RENEWED_AT = 2 / 3
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
# Workers that were started together do not ask together for ever.
_SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class TlsPorts:
    """The ports that need a certificate, and who checks callers' tokens by the keys that are mounted beside it."""

    callers: tuple[TlsPort, ...] = ()
    control: TlsPort | None = None
    tokens: "Tokens | None" = None


class Certificates:
    """What is known now: `ready` is told whether callers' ports have all that they need, when that changes."""

    def __init__(self, config: WorkerConfig, root: Path, ports: TlsPorts, ready: Callable[[bool], None]) -> None:
        self._config = config
        self._root = root
        self._ports = ports
        self._ready = ready
        self._issued: Issued | None = None
        self._shown: dict[TlsPort, Material] = {}
        self._keys = b""
        ready(not ports.callers)

    async def run(self) -> None:
        """Look and ask for ever."""
        async with asyncio.TaskGroup() as group:
            if self._config.identity is not None:
                group.create_task(self._renew())
            if self._config.serving_tls is not None:
                group.create_task(self._look())

    async def _look(self) -> None:
        while True:
            self._bring_up_to_date()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _renew(self) -> None:
        """Ask at two thirds of each certificate's life; after a failure soon, then ever more rarely."""
        pause = _PAUSE_SECONDS
        while True:
            try:
                issued = await in_thread(self._ask, name="identity")
            except Exception as error:  # noqa: BLE001 -- whatever it is: without another try the worker is lost in a day
                log.warning("no certificate for this worker: %s", error)
                wait, pause = pause, min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                log.info("a certificate for %.0f s", issued.seconds)
                self._issued = issued
                self._bring_up_to_date()
                wait, pause = issued.seconds * _RENEWED_AT, _PAUSE_SECONDS
            await asyncio.sleep(wait * random.uniform(1 - _SPREAD, 1))  # noqa: S311 -- no secret

    def _ask(self) -> "Issued":
        # Its cryptography takes time and memory that only those pay who have an identity.
        from inference_worker.identity import ask

        assert self._config.identity is not None
        return ask(self._config.identity, self._root, trust=self._issued.trust if self._issued is not None else "")

    def _bring_up_to_date(self) -> None:
        """Give each port what there is now. What can't be used is said, and the port goes on with what it had."""
        if self._ports.control is not None and self._issued is not None:
            self._give(self._ports.control, Material(self._issued.chain, self._issued.key, self._issued.trust))
        if self._config.serving_tls is None:
            return
        # Apart: keys of tokens that can't be read must not keep an old certificate in its place.
        for work in (self._show_callers, self._read_keys):
            try:
                work()
            except (OSError, ValueError) as error:
                log.warning("the files of callers' ports can't be used: %s", error)
        told = all(port in self._shown for port in self._ports.callers)
        self._ready(told and (self._ports.tokens is None or self._ports.tokens.ready))

    def _show_callers(self) -> None:
        """Raises OSError and ValueError."""
        if (material := self._for_callers()) is not None:
            for port in self._ports.callers:
                self._give(port, material)

    def _give(self, port: TlsPort, material: Material) -> None:
        if self._shown.get(port) == material:
            return
        try:
            port.use(material)
        except (ssl.SSLError, ValueError) as error:
            log.warning("a certificate can't be used, and the one before stays: %s", error)
            return
        self._shown[port] = material

    def _for_callers(self) -> Material | None:
        """What callers' ports show; None while the authority has not answered. Raises OSError."""
        told = self._config.serving_tls
        assert told is not None
        clients = self._text(CLIENT_CA_FILE) if told.client_certificates else ""
        if told.own_certificate:
            return Material(self._text(CERTIFICATE_FILE), self._text(KEY_FILE), clients)
        return Material(self._issued.chain, self._issued.key, clients) if self._issued is not None else None

    def _read_keys(self) -> None:
        if self._ports.tokens is None:
            return
        keys = (self._root / JWKS_FILE).read_bytes()
        if keys != self._keys:
            self._ports.tokens.use(keys)
            self._keys = keys

    def _text(self, name: str) -> str:
        return (self._root / name).read_text(encoding="ascii")
