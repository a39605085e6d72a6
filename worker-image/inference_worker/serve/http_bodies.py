"""Request bodies that come compressed: inflated here, before anything reads them."""

import logging
from collections.abc import Callable

from inference_worker.errors import RequestError, unforeseen
from inference_worker.serve.background import Background
from inference_worker.serve.compression import INLINE_INFLATE_BYTES, Room, coding_of, inflate
from inference_worker.serve.http_messages import Request
from inference_worker.threads import parsed

log = logging.getLogger(__name__)

CODING = "content-encoding"


class Bodies:
    """Inflates bodies, large ones beside the event loop."""

    def __init__(self, room: Room, background: Background) -> None:
        self._room = room
        self._background = background

    def inflate(self, request: Request, go_on: Callable[[], None], refuse: Callable[[RequestError], None]) -> None:
        """Give the request its plain body, now or later, and go on with it; or refuse it. Its caller may have left by then."""
        try:
            coding = coding_of(request.headers[CODING])
            if coding is None:
                go_on()
            elif len(request.body) <= INLINE_INFLATE_BYTES:
                self._replace(request, inflate(request.body, coding, self._room))
                go_on()
            else:
                self._background.spawn(self._inflate(request, coding, go_on, refuse))
        except RequestError as error:
            refuse(error)

    async def _inflate(
        self, request: Request, coding: str, go_on: Callable[[], None], refuse: Callable[[RequestError], None]
    ) -> None:
        payload = request.body
        try:
            self._replace(request, await parsed(lambda: inflate(payload, coding, self._room)))
            go_on()
        except RequestError as error:
            refuse(error)
        except Exception:
            log.exception("a request failed")
            refuse(unforeseen())

    def _replace(self, request: Request, body: bytes) -> None:
        self._room.lend(request, len(body))
        request.body = body
        # Heads that came before share their headers, so these are copied. What they say of the length is past.
        request.headers = {name: value for name, value in request.headers.items() if name != CODING}
