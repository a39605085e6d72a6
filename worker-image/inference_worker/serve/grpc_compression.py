"""The compression of one gRPC call's messages: what came compressed is inflated.

It is answered in the same coding where its caller accepts that. Callers that do not compress get plain answers, whatever they
accept: grpcio accepts all codings in every call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from inference_worker.errors import RequestError, unforeseen
from inference_worker.serve.background import Background
from inference_worker.serve.budget import Budget
from inference_worker.serve.compression import INLINE_INFLATE_BYTES, PLAIN_BYTES, deflate, inflate
from inference_worker.serve.http_messages import Payload
from inference_worker.threads import parsed

log = logging.getLogger(__name__)


def framed(payload: bytes, flag: bytes = b"\x00") -> bytes:
    """A message with its prefix (grpc/grpc, doc/PROTOCOL-HTTP2.md): whether it is compressed, and its length."""
    return flag + len(payload).to_bytes(4, "big") + payload


class Compression:
    """How one call is compressed. Large messages are dealt with beside the event loop."""

    def __init__(self, coding: str, budget: Budget, background: Background, *, answers: bool) -> None:
        """`answers` says whether the answers are compressed too."""
        self.coding = coding
        self.answers = answers
        self._budget = budget
        self._background = background

    def inflate(self, payload: Payload, owner: object, then: Callable[[bytes | RequestError], None]) -> None:
        """Tell `then` the plain message, now or later. `owner` lives as long as that is needed."""
        if len(payload) > INLINE_INFLATE_BYTES:
            self._background.spawn(self._inflate(payload, owner, then))
            return
        try:
            plain = inflate(payload, self.coding, self._budget)
        except RequestError as error:
            then(error)
            return
        self._budget.lend(owner, len(plain))
        then(plain)

    async def _inflate(self, payload: Payload, owner: object, then: Callable[[bytes | RequestError], None]) -> None:
        try:
            plain = await parsed(lambda: inflate(payload, self.coding, self._budget))
        except RequestError as error:
            then(error)
        except Exception:
            log.exception("a request failed")
            then(unforeseen())
        else:
            self._budget.lend(owner, len(plain))
            then(plain)

    def deflate(self, payload: bytes, then: Callable[[bytes], None]) -> None:
        """Tell `then` the message with its prefix, now or later; compressed where that is worth it."""
        if not self.answers or len(payload) <= PLAIN_BYTES:
            then(framed(payload))
            return

        async def later() -> None:
            then(await parsed(lambda: self._deflated(payload)))

        self._background.spawn(later())

    def _deflated(self, payload: bytes) -> bytes:
        short = deflate(payload, self.coding)
        return framed(payload) if short is None else framed(short, b"\x01")
