"""Reads Sigstore's trusted root: its authorities of certificates, and the keys of its logs. It is given, and never fetched.

The format is `application/vnd.dev.sigstore.trustedroot+json;version=0.1`, as `trusted_root.json` of Sigstore's TUF repository.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from inference_worker.signing.certificates import certificate_of
from inference_worker.signing.keys import key_of_der
from inference_worker.signing.strict import SignatureError, decode, unbase64

_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the root's records. It is the administrator's, so what it has beside is left alone."""


class _Period(_Record, frozen=True):
    start: datetime | None = None
    end: datetime | None = None


class _Key(_Record, frozen=True):
    raw_bytes: str
    valid_for: _Period = _Period()


class _LogId(_Record, frozen=True):
    key_id: str


class _Log(_Record, frozen=True):
    public_key: _Key
    log_id: _LogId


class _Certificate(_Record, frozen=True):
    raw_bytes: str


class _Chain(_Record, frozen=True):
    certificates: tuple[_Certificate, ...]


class _Authority(_Record, frozen=True):
    cert_chain: _Chain
    valid_for: _Period = _Period()


class _Root(_Record, frozen=True):
    tlogs: tuple[_Log, ...]
    certificate_authorities: tuple[_Authority, ...]
    ctlogs: tuple[_Log, ...]


@dataclass(frozen=True, slots=True)
class Period:
    """From when until when something is trusted; both ends count."""

    start: datetime
    end: datetime

    def __contains__(self, at: datetime) -> bool:
        return self.start <= at <= self.end


@dataclass(frozen=True, slots=True)
class Log:
    """A log's key, and when it was used."""

    key: PublicKeyTypes
    period: Period


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority's certificates, the root last, and when it issued."""

    chain: tuple[x509.Certificate, ...]
    period: Period


@dataclass(frozen=True, slots=True)
class TrustedRoot:
    """Whom keyless signatures rest on. Logs are by their ids."""

    authorities: tuple[Authority, ...]
    entries: dict[bytes, Log]
    certificates: dict[bytes, Log]


@lru_cache(maxsize=4)
def parse(text: str) -> TrustedRoot:
    """Read a trusted root. Raises SignatureError."""
    if not text:
        raise SignatureError("the administrator trusts no keyless signature")
    raw = decode(text.encode(), _Root, "the administrator's trusted root")
    authorities = (
        Authority(
            tuple(certificate_of(unbase64(each.raw_bytes, "a certificate")) for each in authority.cert_chain.certificates),
            _period(authority.valid_for),
        )
        for authority in raw.certificate_authorities
    )
    return TrustedRoot(tuple(a for a in authorities if a.chain), _logs(raw.tlogs), _logs(raw.ctlogs))


def _logs(raw: Iterable[_Log]) -> dict[bytes, Log]:
    return {
        log_id: log for each in raw if (log := _log(each)) is not None and (log_id := unbase64(each.log_id.key_id, "a log's id"))
    }


def _log(raw: _Log) -> Log | None:
    """A log; None where its key is of a kind that is not known here: what it says counts for nothing then."""
    try:
        return Log(key_of_der(unbase64(raw.public_key.raw_bytes, "a log's key")), _period(raw.public_key.valid_for))
    except SignatureError:
        return None


def _period(raw: _Period) -> Period:
    return Period(raw.start or _FIRST, raw.end or _LAST)
