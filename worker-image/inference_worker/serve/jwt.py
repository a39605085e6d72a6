"""Bearer tokens of callers: JWTs of one issuer, checked by mounted keys. Nothing is fetched, and nothing asked of anybody."""

import contextlib
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from http import HTTPStatus
from itertools import islice

import jwt
from jwt import PyJWK, PyJWKSet

from inference_protocol.messages import JwtRules
from inference_worker.errors import RequestError
from inference_worker.serve.grpc_status import refusal as grpc_refusal
from inference_worker.serve.http2_stream import Stream
from inference_worker.serve.http_messages import Request, Response, error_body

_LONGEST_TOKEN = 8192
_LONGEST_KEYS_BYTES = 64 << 10
_MOST_KEYS = 64
_MOST_TRIED = 4
_LEEWAY_SECONDS = 30
# A good token is not checked again for so long; a key that was taken back counts at once.
_KEPT_SECONDS = 60.0
_MOST_KEPT = 4096
# Signatures of public keys alone: a token must not be signed by what everybody can read.
_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
_CHALLENGE = (("WWW-Authenticate", "Bearer"),)


class Tokens:
    """Says which tokens are good."""

    def __init__(self, rules: JwtRules, *, now: Callable[[], float] = time.time) -> None:
        self._rules = rules
        self._now = now
        self._keys: tuple[PyJWK, ...] = ()
        # Until when (Unix seconds), by the token's digest: the token itself is not kept.
        self._good: OrderedDict[bytes, float] = OrderedDict()

    @property
    def ready(self) -> bool:
        """Whether there is any key."""
        return bool(self._keys)

    def use(self, keys: bytes) -> None:
        """Check by this JWK set from now on. Raises ValueError for what is none, and then goes on with what there was."""
        if len(keys) > _LONGEST_KEYS_BYTES:
            raise ValueError(f"the JWK set is longer than {_LONGEST_KEYS_BYTES} bytes")
        try:
            found = PyJWKSet.from_json(keys.decode()).keys
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"no JWK set: {error}") from error
        usable = tuple(key for key in found if key.algorithm_name in _ALGORITHMS and key.public_key_use in (None, "sig"))
        if not usable or len(usable) > _MOST_KEYS:
            raise ValueError(f"the JWK set has {len(usable)} keys for signatures, and 1 to {_MOST_KEYS} make sense")
        self._keys = usable
        self._good.clear()

    def fault(self, headers: Mapping[str, str]) -> str | None:
        """Why whoever sends these headers is not let in; None for one who is."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token:
            return "callers of this worker show a bearer token"
        if len(token) > _LONGEST_TOKEN:
            return "the token is too long"
        name = hashlib.sha256(token.encode()).digest()
        if self._good.get(name, 0.0) > self._now():
            return None
        try:
            self._keep(name, self._expiry(token))
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            return f"the token is not good: {error}"[:200]
        return None

    def _expiry(self, token: str) -> float:
        """When a good token expires. Raises PyJWTError, ValueError and TypeError for others."""
        header = jwt.get_unverified_header(token)
        named, algorithm = header.get("kid"), header.get("alg")
        fitting = (key for key in self._keys if key.algorithm_name == algorithm and (named is None or key.key_id in (None, named)))
        # Each costs a signature's check, whoever has sent the token.
        keys = list(islice(fitting, _MOST_TRIED))
        if not keys:
            raise ValueError("no known key has signed it")
        for key in keys[:-1]:
            with contextlib.suppress(jwt.InvalidSignatureError, jwt.InvalidAlgorithmError):
                return self._expiry_by(key, token)
        return self._expiry_by(keys[-1], token)

    def _expiry_by(self, key: PyJWK, token: str) -> float:
        claims = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=list(self._rules.audiences),
            issuer=self._rules.issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": ["exp", "iss", "aud"]},
        )
        return float(claims["exp"]) + _LEEWAY_SECONDS

    def _keep(self, name: bytes, expires: float) -> None:
        self._good[name] = min(expires, self._now() + _KEPT_SECONDS)
        self._good.move_to_end(name)
        while len(self._good) > _MOST_KEPT:
            self._good.popitem(last=False)


def guarded(tokens: Tokens, handler: Callable[[Request], None]) -> Callable[[Request], None]:
    """Return what answers HTTP requests whose token is good by `handler`, and others with 401."""

    def handle(request: Request) -> None:
        fault = tokens.fault(request.headers)
        if fault is None:
            handler(request)
        else:
            request.reply(Response(HTTPStatus.UNAUTHORIZED, error_body(fault), headers=_CHALLENGE))

    return handle


def guarded_streams(tokens: Tokens, handler: Callable[[Stream], None]) -> Callable[[Stream], None]:
    """Return what answers gRPC calls whose token is good by `handler`, and others with UNAUTHENTICATED."""

    def handle(stream: Stream) -> None:
        fault = tokens.fault(stream.headers)
        if fault is None:
            handler(stream)
        else:
            stream.finish(grpc_refusal(RequestError(HTTPStatus.UNAUTHORIZED, fault)))

    return handle
