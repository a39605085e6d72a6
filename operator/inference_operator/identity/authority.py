"""The authority as the composition root sees it: keys that are kept up to date, the operator's own certificate, and the server.

Every replica is one. All have the Secret's keys, and each has a certificate of its own, whose key it keeps in memory.
"""

import asyncio
import logging
import ssl
from datetime import datetime

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from inference_operator.errors import OperatorError, RetryableError
from inference_operator.identity.authority_secret import AuthoritySecret
from inference_operator.identity.checks import worker_context
from inference_operator.identity.issuer import Issuer
from inference_operator.identity.keyring import Keyring, Lifetimes
from inference_operator.identity.server import Server
from inference_operator.runtime.clock import Clock
from inference_operator.runtime.pki import Pair, key_pem, load_chain, new_key, sign, validity_of
from inference_protocol.messages import IssuedCertificate

log = logging.getLogger(__name__)

# How soon what another replica has written is taken up.
_LOOK_SECONDS = 30.0
_RENEWED_AT = 2 / 3


class Authority:
    """Keys, the operator's own certificate, and who is answered. `hosts` are the operator's own names, for those who ask it."""

    def __init__(
        self,
        secret: AuthoritySecret,
        issuer: Issuer,
        clock: Clock,
        lifetimes: Lifetimes,
        *,
        domain: str,
        uri: str,
        hosts: tuple[str, ...],
        port: int,
    ) -> None:
        self._secret = secret
        self._issuer = issuer
        self._clock = clock
        self._lifetimes = lifetimes
        self._domain, self._uri, self._hosts = domain, uri, hosts
        self._port = port
        self._ring: Keyring | None = None
        self._due: datetime | None = None
        self._of_workers: ssl.SSLContext | None = None
        self._contexts: list[ssl.SSLContext] = []
        self._own: Pair | None = None

    @property
    def trust(self) -> str:
        """The CAs that workers trust from their start on. Raises RetryableError while the keys are not read."""
        return self._opened.trust

    @property
    def of_workers(self) -> ssl.SSLContext:
        """What connects to workers now: it shakes hands with the one that the server name says. Raises RetryableError."""
        if self._of_workers is None:
            raise RetryableError("the authority's keys are not read yet")
        return self._of_workers

    def server_context(self, protocol: str, client_ca_file: str = "") -> ssl.SSLContext:
        """Return a context for one of the operator's servers, which always shows its newest certificate.

        `protocol` is what ALPN agrees on. With a file it asks for clients' certificates of those CAs. Raises RetryableError, and
        OSError for a file that is none.
        """
        if self._own is None:
            raise RetryableError("the authority's keys are not read yet")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_chain(context, self._own)
        context.set_alpn_protocols([protocol])
        if client_ca_file:
            context.load_verify_locations(cafile=client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
            context.num_tickets = 0
        self._contexts.append(context)
        return context

    async def open(self) -> None:
        """Read the keys, and make what is missing. Raises OperatorError."""
        now = self._clock.now()
        ring = await self._secret.current(now)
        if ring == self._ring and self._due is not None and now < self._due:
            return
        if self._ring is None or ring.signing != self._ring.signing or self._due is None or now >= self._due:
            self._own, self._due = self._certificate(ring, now)
            for context in self._contexts:
                load_chain(context, self._own)
        assert self._own is not None
        # A new context, since none can forget a CA. Connections of the old one go on until they are idle.
        self._of_workers = worker_context(self._own, ring.trust, self._domain)
        self._ring = ring

    async def run(self) -> None:
        """Keep them up to date for ever."""
        pause = min(_LOOK_SECONDS, self._lifetimes.certificate.total_seconds() / 10)
        while True:
            await asyncio.sleep(pause)
            try:
                await self.open()
            except (OperatorError, ssl.SSLError, ValueError) as error:
                log.warning("the authority's keys are not up to date: %s", error)

    async def serve(self) -> None:
        """Answer workers for ever."""
        server = Server(self.issue, self.server_context("http/1.1"), port=self._port)
        log.info("workers get their certificates on port %d", server.port)
        await server.serve()

    async def issue(self, address: str, token: str, request: str) -> IssuedCertificate:
        """Answer one. Raises IssueError."""
        return await self._issuer.issue(self._opened, address, token, request)

    def _certificate(self, ring: Keyring, now: datetime) -> tuple[Pair, datetime]:
        """The operator's own certificate, for its servers and as a client of workers, and when the next one is due."""
        key = new_key()
        names = [x509.UniformResourceIdentifier(self._uri), *map(x509.DNSName, self._hosts)]
        certificate = sign(
            ring.signing,
            key.public_key(),
            subject="",
            names=names,
            usages=[ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
            validity=self._lifetimes.of_certificate(now),
        )
        end = validity_of(certificate).end
        return Pair(certificate, key_pem(key)), now + (end - now) * _RENEWED_AT

    @property
    def _opened(self) -> Keyring:
        if self._ring is None:
            raise RetryableError("the authority's keys are not read yet")
        return self._ring
