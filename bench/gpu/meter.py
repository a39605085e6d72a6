"""What the device's own counters say: energy in millijoules since boot, and the share of time in which something ran."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.beside import beside

_EVERY_SECONDS = 0.1


@dataclass(slots=True)
class Meter:
    """Filled in when the stretch ends."""

    seconds: float = 0.0
    joules: float = 0.0
    shares: list[float] = field(default_factory=list)

    @property
    def utilisation(self) -> float:
        """The mean share of time, without the first second and the last half."""
        middle = self.shares[10:-5] or self.shares
        return sum(middle) / len(middle) / 100 if middle else 0.0

    def summary(self) -> dict[str, float]:
        """For the record."""
        return {"utilisation": round(self.utilisation, 3), "watts": round(self.joules / max(self.seconds, 1e-9), 1)}


@contextmanager
def metered() -> Iterator[Meter]:
    """Measure the first device for as long as the block lasts."""
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    meter = Meter()

    def watch(done: threading.Event) -> None:
        while not done.wait(_EVERY_SECONDS):
            meter.shares.append(pynvml.nvmlDeviceGetUtilizationRates(device).gpu)

    with beside(watch):
        before, begun = pynvml.nvmlDeviceGetTotalEnergyConsumption(device), time.perf_counter()
        try:
            yield meter
        finally:
            meter.seconds = time.perf_counter() - begun
            meter.joules = (pynvml.nvmlDeviceGetTotalEnergyConsumption(device) - before) / 1e3
