"""The keyring in its Secret, which all replicas share: whoever sees first that something is due writes it."""

import base64
import binascii
import logging
from datetime import datetime

from inference_operator.errors import ConflictError, NotFoundError, RetryableError
from inference_operator.identity.keyring import Keyring, Lifetimes, rotated
from inference_operator.kube.ports import KubeClient, Raw
from inference_operator.runtime.pki import Pair

log = logging.getLogger(__name__)

# `ca.crt` has all that are trusted. Callers of jobs with the authority's certificates take it from here.
_SIGNING, _FOLLOWING, _RETIRED, _TRUST = ("tls.crt", "tls.key"), ("next.crt", "next.key"), "retired.crt", "ca.crt"
_END = "-----END CERTIFICATE-----\n"


class AuthoritySecret:
    """Reads it, and writes what is due."""

    def __init__(self, kube: KubeClient, *, namespace: str, name: str, lifetimes: Lifetimes) -> None:
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        self._name = name
        self._lifetimes = lifetimes

    async def current(self, now: datetime) -> Keyring:
        """Return the keyring, brought up to date. Raises OperatorError.

        Two replicas that write at the same time meet at the Secret's version: the second takes what the first has written.
        """
        try:
            secret = await self._kube.get(self._path)
        except NotFoundError as error:
            # The operator's account may create none.
            raise RetryableError(f"there is no Secret {self._name}; an upgrade of the release makes it") from error
        found = self._read(secret)
        try:
            wanted = rotated(found, now, self._lifetimes)
        except ValueError as error:
            raise self._damaged() from error
        if found is not None and wanted == found:
            return found
        log.info("the authority's keys have changed; %d are trusted", wanted.trust.count(_END))
        try:
            # What else it has belongs to whoever has made it.
            await self._kube.replace(self._path, {**secret, "data": _data(wanted)})
        except ConflictError:
            found = self._read(await self._kube.get(self._path))
            if found is None:
                raise self._damaged() from None
            return found
        return wanted

    def _read(self, secret: Raw) -> Keyring | None:
        """The keyring of a Secret; None in one that is empty yet. Raises RetryableError."""
        data: dict[str, str] = secret.get("data") or {}
        if not any(data.get(key) for key in _SIGNING):
            return None
        try:
            texts = {key: base64.b64decode(value or "", validate=True).decode("ascii") for key, value in data.items()}
        except (binascii.Error, UnicodeDecodeError) as error:
            raise self._damaged() from error
        signing, following = (Pair(*(texts.get(key, "") for key in keys)) for keys in (_SIGNING, _FOLLOWING))
        if not (signing.certificate and signing.key):
            raise self._damaged()
        retired = tuple(part + _END for part in texts.get(_RETIRED, "").split(_END) if part.strip())
        return Keyring(signing, following if following.key else None, retired)

    def _damaged(self) -> RetryableError:
        text = "has no authority's key, or a damaged one; take its data away, restart the operator, and delete the worker pods"
        return RetryableError(f"Secret {self._name} {text}")


def _data(ring: Keyring) -> dict[str, str]:
    following = ring.following or Pair("", "")
    texts = {
        **dict(zip(_SIGNING, (ring.signing.certificate, ring.signing.key), strict=True)),
        **dict(zip(_FOLLOWING, (following.certificate, following.key), strict=True)),
        _RETIRED: "".join(ring.retired),
        _TRUST: ring.trust,
    }
    return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
