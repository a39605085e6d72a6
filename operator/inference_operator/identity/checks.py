"""Whether whoever answers at a worker's address is that worker: by the name in its certificate, before anything is said to it."""

import ssl
from typing import NamedTuple

from inference_operator.runtime.pki import Pair, load_chain
from inference_protocol.spiffe import only_uri, worker_id

_SUFFIX = "worker"


class ExpectedWorker(NamedTuple):
    """The pod that is meant. Its address is only the way there: the next pod may have it by now."""

    namespace: str
    uid: str

    @property
    def server_name(self) -> str:
        """What the handshake carries. It has to look like a host's name."""
        return f"{self.uid}.{self.namespace}.{_SUFFIX}"


def is_worker(certificate: object, domain: str, server_name: str | None) -> bool:
    """Whether a verified certificate, in the form of `getpeercert`, is that of the worker whose server name this is."""
    uri = only_uri(certificate)
    named = worker_id(uri) if uri is not None else None
    return named is not None and named.domain == domain and ExpectedWorker(named.namespace, named.uid).server_name == server_name


def worker_context(own: Pair, trust: str, domain: str) -> ssl.SSLContext:
    """Return a context that shows `own`, and shakes hands only with the worker that the server name says."""

    class OfWorker(ssl.SSLObject):
        """The ssl module knows hosts' names alone; a SPIFFE ID is compared here, at the handshake's end."""

        def do_handshake(self) -> None:
            super().do_handshake()
            if not is_worker(self.getpeercert(), domain, self.server_hostname):
                raise ssl.SSLCertVerificationError("another worker answers at this address")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=trust)
    load_chain(context, own)
    context.sslobject_class = OfWorker
    return context
