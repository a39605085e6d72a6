"""A clock that stands until a test moves it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.builders import NOW


@dataclass
class Clock:
    """Shows `seconds` after NOW."""

    seconds: float = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def boottime(self) -> float:
        return self.monotonic()
