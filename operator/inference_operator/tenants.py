"""Who calls the gateway, and how much each may have: the administrator's list of tenants, and what is wrong with it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec

ANONYMOUS = "anonymous"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CERTIFICATE = re.compile(r"(CN|DNS|URI):\S(.*\S)?")
# Envoy fills buckets at least every 50 ms, and counts in 32 bits.
_LEAST_RATE, _MOST_RATE = 0.001, 1_000_000.0
_Amount = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class Tenant(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One of those who call: how it is known, where it may go, and what it gets."""

    # In small letters, digits and hyphens. `anonymous` are those who are not known.
    name: str
    # Where its models are. A name that ends in * stands for a prefix.
    namespaces: tuple[str, ...] = ("*",)
    # Names in its client certificates: CN:NAME, DNS:NAME or URI:NAME, whole.
    certificates: tuple[str, ...] = ()
    # Values of the tokens' claim.
    claims: tuple[str, ...] = ()
    # Its part of a busy worker, as compared with other tenants.
    weight: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    # Requests of all Envoys together; more get 429.
    requests_per_second: Annotated[float, msgspec.Meta(ge=_LEAST_RATE, le=_MOST_RATE)] | None = None
    # How many of them may come at once; without it, as many as in a second.
    request_burst: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    # Of each model, by all its workers together: rows, seconds of devices, and requests at a time.
    rows_per_second: _Amount | None = None
    device_seconds_per_second: _Amount | None = None
    concurrent_requests: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    # The most urgent priority that its requests may have, 1 being the most urgent of all; 100 is that of requests without one.
    highest_priority: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 100


class Tokens(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """JSON Web Tokens by which tenants are known."""

    # Who signs them, as in their claim `iss`; empty for none.
    issuer: str = ""
    # For whom they have to be: one of these is in the claim `aud`.
    audiences: tuple[str, ...] = ()
    # The claim whose value, or one of whose values, is a tenant's.
    claim: str = "sub"
    # The file with the issuer's public keys (JWKS). It is read again every few seconds.
    key_set_file: str = ""
    # Whether workers see a token that was verified.
    forward: bool = False


class Tenants(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Who calls. The chart fills in the files: callers' keys and the CAs are in the Envoys alone."""

    # Whether callers are told apart at all.
    enabled: bool = False
    # What becomes of those who are not known: they are refused, or they are the tenant `anonymous`.
    unknown: Literal["Refuse", "Anonymous"] = "Refuse"
    # The folder with ca.crt, whose CAs sign callers' certificates; empty asks callers for none.
    certificate_folder: str = ""
    # The file with callers' keys; empty for none.
    key_file: str = ""
    # Tokens: {issuer, audiences, claim, keySetFile, forward}.
    tokens: Tokens = Tokens()
    # The tenants: {name, namespaces, certificates, claims, weight, requestsPerSecond, requestBurst, rowsPerSecond,
    # deviceSecondsPerSecond, concurrentRequests, highestPriority}.
    list: tuple[Tenant, ...] = ()

    @property
    def all(self) -> tuple[Tenant, ...]:
        """The tenants, and the one of those who are not known where these are let in."""
        named = any(tenant.name == ANONYMOUS for tenant in self.list)
        return self.list if named or self.unknown == "Refuse" else (*self.list, Tenant(ANONYMOUS))


NO_TENANTS = Tenants()


def tenants_fault(tenants: Tenants, *, tls: bool) -> str | None:
    """What is wrong with the list, with its place and the cure; None where it can be used. `tls` is whether callers speak it."""
    return next(_faults(tenants, tls=tls), None) if tenants.enabled else None


def _faults(tenants: Tenants, *, tls: bool) -> Iterator[str]:
    tokens = tenants.tokens
    if tenants.certificate_folder and not tls:
        yield "gateway.tenants: certificates need TLS: set gateway.tls.secretName"
    if tokens.issuer and not (tokens.audiences and tokens.claim and tokens.key_set_file):
        yield "gateway.tenants.tokens needs audiences, a claim and the issuer's keys beside the issuer"
    if not (tenants.certificate_folder or tenants.key_file or tokens.issuer or tenants.unknown == "Anonymous"):
        yield "gateway.tenants: nobody could be known: set up certificates, tokens or keys, or unknown: Anonymous"
    for tenant in tenants.list:
        yield from (f"gateway.tenants.list, {tenant.name}: {fault}" for fault in _faults_of(tenant, tenants))
    for what, found in (
        ("name", (tenant.name for tenant in tenants.list)),
        ("certificate", (name for tenant in tenants.list for name in tenant.certificates)),
        ("claim", (value for tenant in tenants.list for value in tenant.claims)),
    ):
        yield from (f"gateway.tenants.list: the {what} {twice} is there twice" for twice in _twice(found))


def _faults_of(tenant: Tenant, tenants: Tenants) -> Iterator[str]:
    if not _NAME.fullmatch(tenant.name):
        yield "a name has small letters, digits and hyphens, at most 63"
    if not tenant.namespaces:
        yield "it may go nowhere: name namespaces"
    for name in tenant.certificates:
        if not _CERTIFICATE.fullmatch(name):
            yield f"write the certificate {name} as CN:NAME, DNS:NAME or URI:NAME"
    if tenant.certificates and not tenants.certificate_folder:
        yield "its certificates are not looked at: name their authority"
    if tenant.claims and not tenants.tokens.issuer:
        yield "its claims are not looked at: name the tokens' issuer"
    if tenant.request_burst is not None and tenant.requests_per_second is None:
        yield "requestBurst needs requestsPerSecond"


def _twice(found: Iterable[str]) -> Iterator[str]:
    return (name for name, count in Counter(found).items() if count > 1)
