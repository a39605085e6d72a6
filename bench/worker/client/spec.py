"""What the client is told, and what it leaves."""

import json
from dataclasses import dataclass
from pathlib import Path

# Statuses beyond HTTP's: what became of a request that no answer came for.
NOT_ANSWERED, REFUSED, CUT_OFF, RESET = 0, -1, -2, -3
_GRPC_STATUS = {0: 200, 1: 499, 3: 400, 4: 504, 5: 404, 8: 429, 13: 500, 14: 503}


@dataclass(frozen=True, slots=True)
class Spec:
    """One run. Requests are in `requests` in turn; new connections go to the last port whose second has come.

    `arrivals` is "poisson", "constant", or "serial" (the next when the last is answered). `tail_bytes` of each answer's end are
    kept, for a look at whether it was the right one.
    """

    protocol: str
    ports: list[tuple[float, int]]
    requests: str
    result: str
    rate: float
    seconds: float
    arrivals: str = "poisson"
    seed: int = 1
    connections: int = 64
    grace_seconds: float = 1.0
    timeout_ms: float | None = None
    tail_bytes: int = 0
    path: str = ""

    def save(self, path: Path) -> None:
        """Write it for the client."""
        path.write_text(json.dumps({name: getattr(self, name) for name in self.__slots__}))

    @staticmethod
    def load(path: Path) -> "Spec":
        """Read it in the client."""
        return Spec(**json.loads(path.read_text()))


def save_requests(path: Path, bodies: list[bytes]) -> None:
    """Requests one after the other, each behind its length."""
    path.write_bytes(b"".join(len(body).to_bytes(4, "big") + body for body in bodies))


def load_requests(path: Path) -> list[bytes]:
    """The same, read."""
    data, bodies, at = path.read_bytes(), [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        bodies.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return bodies


def from_grpc(code: int) -> int:
    """A gRPC status as the HTTP status that means the same."""
    return _GRPC_STATUS.get(code, 500)
