"""Logs as JSON lines, or as text."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from aiohttp.http_exceptions import HttpProcessingError

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, and the exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class OurFaults(logging.Filter):
    """Keep what servers log of faults in the operator; what a caller got wrong is told to the caller.

    aiohttp logs a traceback for each request that is no HTTP, and grpclib for each that its caller leaves: whoever reaches a port
    could fill the log.
    """

    def __init__(self, callers: tuple[type[Exception], ...]) -> None:
        """`callers` are the exceptions that a caller causes."""
        super().__init__()
        self._callers = callers

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging.Filter."""
        return not (record.exc_info and isinstance(record.exc_info[1], self._callers))


def set_up(level: str, form: Literal["json", "text"] = "json") -> None:
    """Log to stderr. kopf's own chatter about objects stays out."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("kopf", "kopf.objects", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("aiohttp.server").addFilter(OurFaults((HttpProcessingError,)))
