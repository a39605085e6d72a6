"""Request bodies that come compressed: inflated here, before anything reads them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from inference_worker.errors import RequestError, unforeseen
from inference_worker.serve.background import Background
from inference_worker.serve.budget import Budget
from inference_worker.serve.compression import INLINE_INFLATE_BYTES, coding_of, inflate
from inference_worker.serve.http_messages import Request

log = logging.getLogger(__name__)

CODING = "content-encoding"


class Bodies:
    """Inflates bodies, large ones beside the event loop."""

    def __init__(self, budget: Budget, background: Background) -> None:
        self._budget = budget
        self._background = background

    def inflate(self, request: Request, go_on: Callable[[], None], refuse: Callable[[RequestError], None]) -> None:
        """Give the request its plain body, now or later, and go on with it; or refuse it. Its caller may have left by then."""
        try:
            coding = coding_of(request.headers[CODING])
        except RequestError as error:
            refuse(error)
            return
        if coding is None:
            go_on()
            return
        payload = request.body

        def then(plain: bytes) -> None:
            self._replace(request, plain)
            go_on()

        def failed(error: Exception) -> None:
            if not isinstance(error, RequestError):
                log.error("a request failed", exc_info=error)
                error = unforeseen()
            refuse(error)

        apart = len(payload) > INLINE_INFLATE_BYTES
        self._background.make(lambda: inflate(payload, coding, self._budget), then, failed, apart=apart)

    def _replace(self, request: Request, body: bytes) -> None:
        self._budget.lend(request, len(body))
        request.body = body
        # Heads that came before share their headers, so these are copied. What they say of the length is past.
        request.headers = {name: value for name, value in request.headers.items() if name != CODING}
