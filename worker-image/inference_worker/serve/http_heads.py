"""Heads of HTTP/1.1 requests that were parsed before: programs send the same head again and again, and it means the same."""

from dataclasses import dataclass

from inference_worker.serve.budget import Budget, memory_of

_HEADS = 512
_HEAD_BYTES = 4096
_KEPT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Head:
    """What a head means; `length` is that of the body behind it."""

    method: str
    path: str
    headers: dict[str, str]
    keep_alive: bool
    version: str
    length: int


def without_offer(method: bytes, target: bytes, version: str, headers: dict[str, str]) -> bytes:
    """The head of a request as it would be if its caller had not offered another protocol."""
    kept = {name: value for name, value in headers.items() if name not in ("upgrade", "http2-settings")}
    options = [option for option in kept.pop("connection", "").split(",") if option.strip().lower() in ("close", "keep-alive")]
    if options:
        kept["connection"] = ",".join(options)
    lines = (f"{name}: {value}\r\n" for name, value in kept.items())
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, target, version.encode(), "".join(lines).encode("latin-1"))


class KnownHeads(dict[bytes, Head]):
    """Heads by their bytes, the empty line included. A dictionary, since it is asked for every request."""

    __slots__ = ("_budget", "_bytes")

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget
        self._bytes = 0

    def remember(self, data: bytes, head: Head) -> None:
        """Keep what the head of a request means that came as `data`, where that is all of it and nothing else."""
        end = data.find(b"\r\n\r\n") + 4
        plain = head.headers.keys().isdisjoint(("transfer-encoding", "expect", "upgrade"))
        if plain and end + head.length == len(data) and end <= _HEAD_BYTES and data[:1].isalpha():
            size = end + memory_of(head.headers)
            if len(self) >= _HEADS or self._bytes + size > _KEPT_BYTES:
                self.clear()
                self._budget.give(self._bytes)
                self._bytes = 0
            if self._budget.has(size):
                self._bytes += size
                self[data[:end]] = head
