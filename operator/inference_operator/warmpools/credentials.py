"""Who may hand tasks to a warm worker: whoever has the operator's key, and so can make that worker's token."""

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Protocol

from inference_operator.state.objects import Key


class Tokens(Protocol):
    """Makes the tokens of worker pods."""

    def token(self, pod: Key) -> str:
        """The bearer token of one worker pod."""
        ...

    def digest(self, pod: Key) -> str:
        """What the worker is told of it."""
        ...


@dataclass(frozen=True, slots=True)
class TaskKey:
    """The operator's secret. Each worker knows the digest of its own token alone, so that reading a pod gives no access to it."""

    secret: bytes = field(repr=False)

    def token(self, pod: Key) -> str:
        """The bearer token of one worker pod: HMAC-SHA256 over its namespace and name, in hex."""
        return hmac.new(self.secret, str(pod).encode(), hashlib.sha256).hexdigest()

    def digest(self, pod: Key) -> str:
        """What the worker is told: the SHA-256 of its token, in hex."""
        return hashlib.sha256(self.token(pod).encode()).hexdigest()
