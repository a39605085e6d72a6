"""Asking worker pods how they stand."""

import aiohttp
import msgspec

from inference_protocol.messages import HTTP_PORT, TELEMETRY_PATH, Telemetry

# A worker that takes longer than this is busy or gone; the next round asks again.
_LONGEST_BYTES = 1 << 18
_TIMEOUT = aiohttp.ClientTimeout(total=1.0)


class Workers:
    """A WorkerClient over plain HTTP inside the cluster."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._decoder = msgspec.json.Decoder(Telemetry)

    async def telemetry(self, address: str) -> Telemetry | None:
        """See WorkerClient."""
        host = f"[{address}]" if ":" in address else address
        try:
            async with self._session.get(f"http://{host}:{HTTP_PORT}{TELEMETRY_PATH}", timeout=_TIMEOUT) as response:
                if response.status != 200:
                    return None
                # A worker's word is not trusted, its length neither.
                if response.content_length is None or response.content_length > _LONGEST_BYTES:
                    return None
                return self._decoder.decode(await response.read())
        except (TimeoutError, aiohttp.ClientError, OSError, msgspec.DecodeError, msgspec.ValidationError):
            return None
