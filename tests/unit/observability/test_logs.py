"""What reaches the operator's log."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiohttp.http_exceptions import HttpProcessingError

from inference_operator.observability.health import Health, serve_health
from inference_operator.observability.logs import OurFaults
from inference_operator.runtime.clock import SystemClock
from tests.loopback import free_ports


async def test_requests_that_are_no_http_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Fuzzing found it: aiohttp logged a traceback of a kilobyte for each."""
    quiet = OurFaults((HttpProcessingError,))
    logging.getLogger("aiohttp.server").addFilter(quiet)
    (port,) = free_ports(1)
    runner = await serve_health(Health(SystemClock(), silence_seconds=60), port, lambda: None)
    try:
        for bad in (
            b"GET / HTTP/1.1\r\nHost\xff: a\r\n\r\n",
            b"GET a b HTTP/9\r\n\r\n",
            b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" + bad)
            assert b" 400 " in await asyncio.wait_for(reader.read(), 20)
            writer.close()
    finally:
        await runner.cleanup()
        logging.getLogger("aiohttp.server").removeFilter(quiet)

    assert caplog.records == []


def test_faults_of_the_operator_itself_are_logged() -> None:
    info = (ValueError, ValueError(), None)
    assert OurFaults((HttpProcessingError,)).filter(logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "Error", (), info))
