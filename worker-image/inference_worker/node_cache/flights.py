"""One fetch of a model at a time: others wait for it, and the next begins where it failed."""

import threading
import time
from dataclasses import dataclass, field

Key = tuple[str, str]


@dataclass(slots=True, eq=False)
class Flight:
    """A fetch under way. `end` may be called by any thread, and more than once."""

    key: Key
    _flights: "Flights" = field(repr=False)

    def end(self) -> None:
        """Let those go on who wait."""
        self._flights.end(self)


class Flights:
    """Fetches under way, by namespace and digest."""

    def __init__(self) -> None:
        self._under_way: dict[Key, Flight] = {}
        self._changed = threading.Condition()

    def begin(self, key: Key) -> Flight | None:
        """Begin a fetch; None while another is under way."""
        with self._changed:
            if key in self._under_way:
                return None
            flight = self._under_way[key] = Flight(key, self)
            return flight

    def wait(self, key: Key, seconds: float) -> None:
        """Wait until no fetch of the model is under way, for so long at most."""
        until = time.monotonic() + seconds
        with self._changed:
            while key in self._under_way and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)

    def end(self, flight: Flight) -> None:
        """See Flight.end."""
        with self._changed:
            if self._under_way.get(flight.key) is flight:
                del self._under_way[flight.key]
                self._changed.notify_all()
