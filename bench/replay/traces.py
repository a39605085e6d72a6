"""Real arrivals, scaled to this machine (`TRACES.md` tells where they are from)."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a trace: its seconds from `begin` to `end`, each `faster` times shorter; `share` of its requests (2: all, twice)."""

    trace: str
    begin: int
    end: int
    faster: float
    share: float

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return (self.end - self.begin) / self.faster

    def times(self) -> list[float]:
        """When requests are sent. Those of one second of the trace are spread evenly over it: finer it does not go."""
        found, owed = [], 0.0
        for second, count in enumerate(counts(self.trace)[self.begin : self.end]):
            owed += count * self.share
            number = int(owed)
            owed -= number
            found += [(second + (n + 0.5) / number) / self.faster for n in range(number)]
        return found


def counts(trace: str) -> list[int]:
    """Requests by second."""
    return [int(x) for x in (Path(__file__).parent / f"azure_llm_2023_{trace}.txt").read_text().split()]
