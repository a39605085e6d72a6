"""SPIFFE IDs of workers and of the operator: who somebody is, as the URI of a certificate.

A worker's names its pod by uid, since names and addresses of pods are used again.
"""

import re
from typing import NamedTuple

SCHEME = "spiffe://"
_WORKER = re.compile(
    r"spiffe://(?P<domain>[a-z0-9._-]+)/ns/(?P<namespace>[a-z0-9.-]+)/sa/(?P<account>[a-z0-9.-]+)/pod/(?P<uid>[A-Za-z0-9-]+)"
)


class WorkerId(NamedTuple):
    """A worker pod in a trust domain: its namespace, its ServiceAccount and its uid."""

    domain: str
    namespace: str
    account: str
    uid: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.domain}/ns/{self.namespace}/sa/{self.account}/pod/{self.uid}"


def worker_id(uri: str) -> WorkerId | None:
    """Return the worker that a URI names; None where it names none."""
    found = _WORKER.fullmatch(uri)
    return WorkerId(found["domain"], found["namespace"], found["account"], found["uid"]) if found else None


def operator_id(domain: str, namespace: str, account: str) -> str:
    """Return the SPIFFE ID of the operator that runs in a namespace under a ServiceAccount."""
    return f"{SCHEME}{domain}/ns/{namespace}/sa/{account}"


def only_uri(certificate: object) -> str | None:
    """Return the one URI of a certificate in the form of `ssl.SSLSocket.getpeercert`; None where it has none, or several."""
    names = certificate.get("subjectAltName", ()) if isinstance(certificate, dict) else ()
    uris = [str(value) for kind, value in names if kind == "URI"]
    return uris[0] if len(uris) == 1 else None
