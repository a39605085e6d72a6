"""Who asks: the API server's aggregation layer in somebody's name, or somebody with a token.

Headers that name a user count only over a connection whose client certificate chains to the cluster's own request-header CA (the
TLS handshake has checked that) and has an allowed name: anybody could write them else.
"""

import hashlib
import json
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from inference_operator.autoscaling.metricsapi.budget import ReviewBudget
from inference_operator.autoscaling.metricsapi.cache import TimedCache
from inference_operator.errors import OperatorError
from inference_operator.kube.ports import Raw

AUTHENTICATED = "system:authenticated"
CONFIG_PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_TOKEN_SECONDS = 10.0
# Tokens that were good, and answers about others, that are remembered.
_MOST_GOOD, _MOST_OTHERS = 1024, 256


@dataclass(frozen=True, slots=True)
class Identity:
    """A user. Everybody who is one is in `system:authenticated`."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def all_groups(self) -> tuple[str, ...]:
        """The groups, system:authenticated among them: the aggregator sends its own requests without any."""
        return self.groups if AUTHENTICATED in self.groups else (*self.groups, AUTHENTICATED)


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """How the cluster's aggregation layer makes itself known: the ConfigMap extension-apiserver-authentication."""

    ca: str
    allowed_names: tuple[str, ...]
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    uid_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]

    def identity(self, certificate: Mapping[str, object] | None, headers: CIMultiDictProxy[str]) -> Identity | None:
        """The user that the headers name, if whoever sent them may name one. `certificate` is one that TLS has verified."""
        name = common_name(certificate)
        if name is None or (self.allowed_names and name not in self.allowed_names):
            return None
        user = next((headers[h] for h in self.user_headers if headers.get(h)), None)
        if user is None:
            return None
        groups = tuple(value for h in self.group_headers for value in headers.getall(h, ()) if value)
        uid = next((headers[h] for h in self.uid_headers if headers.get(h)), "")
        return Identity(user, groups, uid, self._extra(headers))

    def _extra(self, headers: CIMultiDictProxy[str]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for header, value in headers.items():
            for prefix in self.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    key = unquote(header[len(prefix) :].lower())
                    found[key] = (*found.get(key, ()), value)
        return found


def parse_front_proxy(config_map: Raw) -> FrontProxy | None:
    """Read the ConfigMap; None where the cluster has no request-header CA. Lists in it are JSON texts. Raises ValueError."""
    data: Mapping[str, str] = config_map.get("data") or {}
    ca = data.get("requestheader-client-ca-file", "")
    if not ca.strip():
        return None
    return FrontProxy(
        ca=ca,
        allowed_names=_list(data, "requestheader-allowed-names"),
        user_headers=_list(data, "requestheader-username-headers"),
        group_headers=_list(data, "requestheader-group-headers"),
        uid_headers=_list(data, "requestheader-uid-headers"),
        extra_prefixes=_list(data, "requestheader-extra-headers-prefix"),
    )


def _list(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    found = json.loads(data.get(key) or "[]")
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f"{key} is no list of texts")
    return tuple(found)


def common_name(certificate: Mapping[str, object] | None) -> str | None:
    """The subject's common name of a certificate in the form of `ssl.SSLSocket.getpeercert`."""
    subject = certificate.get("subject") if certificate else None
    if not isinstance(subject, tuple):
        return None
    return next((str(value) for rdn in subject for key, value in rdn if key == "commonName"), None)


def trusting(context: ssl.SSLContext, ca: str) -> ssl.SSLContext:
    """Have a server ask for client certificates of a CA. One that is of another ends the handshake; none is fine."""
    context.load_verify_locations(cadata=ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


class Tokens:
    """Bearer tokens, by TokenReview. Those that were good have a budget and a cache of their own, which junk can't use up."""

    def __init__(self, known: ReviewBudget, unknown: ReviewBudget, monotonic: Callable[[], float]) -> None:
        self._known = known
        self._unknown = unknown
        # By the token's digest: the token itself is not kept.
        self._good: TimedCache[str, Identity | None] = TimedCache(monotonic, seconds=_TOKEN_SECONDS)
        self._others: TimedCache[str, Identity | None] = TimedCache(monotonic, seconds=_TOKEN_SECONDS, most=_MOST_OTHERS)
        self._were_good: OrderedDict[str, None] = OrderedDict()

    async def identity(self, authorization: str) -> Identity | None:
        """Whose token it is; None for nobody's. Raises OperatorError when that can't be found out, OverloadedError not now."""
        kind, _, token = authorization.partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token or not token.isascii():
            return None
        key = hashlib.sha256(token.encode()).hexdigest()
        if key in self._were_good:
            found = await self._good.get(key, lambda: self._review(self._known, token))
            if found is None:
                self._were_good.pop(key, None)
            return found
        found = await self._others.get(key, lambda: self._review(self._unknown, token))
        if found is not None and key not in self._were_good:
            self._remember(key, found)
        return found

    def _remember(self, key: str, identity: Identity) -> None:
        self._good.keep(key, identity)
        self._were_good[key] = None
        while len(self._were_good) > _MOST_GOOD:
            self._were_good.popitem(last=False)

    @staticmethod
    async def _review(reviews: ReviewBudget, token: str) -> Identity | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = await reviews.create("/apis/authentication.k8s.io/v1/tokenreviews", body)
        status: Raw = answer.get("status") or {}
        if not status.get("authenticated"):
            return None
        user: Raw = status.get("user") or {}
        if not user.get("username"):
            raise OperatorError("the API server knows the token, and does not say whose it is")
        extra = {key: tuple(values) for key, values in (user.get("extra") or {}).items()}
        return Identity(user["username"], tuple(user.get("groups") or ()), user.get("uid", ""), extra)
