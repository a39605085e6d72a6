"""Whether the process that holds the Lease has ended, by the word of its own kernel.

A kernel closes the connections of a process that ends, and refuses new ones. So a standby that is connected to the leader knows of
its death at once, and need not wait until the Lease is over. A node that falls silent refuses nothing: its Lease has to end.
"""

import asyncio
import contextlib
from dataclasses import dataclass

# Within so many seconds a connection is made, or nothing is known.
_CONNECT_SECONDS = 1.0
# Between two refusals in a row.
_AGAIN_SECONDS = 0.02
# One of whom nothing is known is asked again after so long.
_ASKED_AGAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder of the Lease, and where its process listens from before it takes the Lease until it has given it back."""

    identity: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.identity} {self.host} {self.port}"

    @classmethod
    def parse(cls, text: str, identity: str) -> "Holder | None":
        """Read what a holder wrote; None where it is of another one, which was there before, or no address."""
        parts = text.split(" ")
        if len(parts) != 3 or parts[0] != identity or not parts[2].isdecimal() or not 0 < int(parts[2]) < 65536:
            return None
        return cls(identity, parts[1], int(parts[2]))

    async def refuses(self) -> bool:
        """Whether nobody listens there. False too where nothing is known."""
        try:
            _, writer = await self._connect()
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        writer.close()
        return False

    async def ended(self) -> bool:
        """Wait until nobody listens there any more. False where nothing will be known of it.

        Only of who was heard once: a firewall may refuse connections in the name of a holder that lives.
        """
        try:
            reader, writer = await self._connect()
            while True:
                with contextlib.closing(writer), contextlib.suppress(OSError):
                    # It says nothing unasked. A server may end a connection for being idle.
                    while await reader.read(1024):
                        pass
                # A process that ends may close its connections before the port: then the next one is ended, too.
                again = await self._reconnected()
                if again is None:
                    return True
                reader, writer = again
        except (OSError, TimeoutError):
            return False

    async def _reconnected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Another connection; None where two in a row are refused."""
        for _ in range(2):
            try:
                return await self._connect()
            except ConnectionRefusedError:
                await asyncio.sleep(_AGAIN_SECONDS)
        return None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_connection(self.host, self.port)


class HolderWatch:
    """Watches the process of one holder at a time."""

    def __init__(self) -> None:
        self._holder: Holder | None = None
        self._ended: asyncio.Task[bool] | None = None
        self._again = 0.0

    def follow(self, holder: Holder | None) -> None:
        """Watch this holder from now on, None for nobody. One of whom nothing was known is asked again after some seconds."""
        now = asyncio.get_running_loop().time()
        unknown = self._ended is not None and self._ended.done() and not self._ended.result()
        if holder == self._holder and not (unknown and now >= self._again):
            return
        self.stop()
        self._holder, self._again = holder, now + _ASKED_AGAIN_SECONDS
        self._ended = asyncio.create_task(holder.ended()) if holder is not None else None

    def stop(self) -> None:
        """Watch nobody."""
        if self._ended is not None:
            self._ended.cancel()
        self._holder = self._ended = None

    async def wait(self, seconds: float) -> None:
        """Wait for so long, or until the process has ended."""
        if self._ended is None or self._ended.done():
            await asyncio.sleep(seconds)
        else:
            await asyncio.wait((self._ended,), timeout=seconds)

    async def has_ended(self) -> bool:
        """Whether the process has ended, and none has taken its place: asked once more, since a restarted one has the same name."""
        holder, ended = self._holder, self._ended
        if holder is None or ended is None or not ended.done() or not ended.result():
            return False
        if await holder.refuses():
            return True
        self.stop()
        return False
