"""What meters say of devices: energy drawn, and how busy they are."""

from dataclasses import dataclass
from datetime import datetime

from inference_operator.api.job_status import EnergyMeter


@dataclass(frozen=True, slots=True)
class Device:
    """One answer about one device.

    `utilisation` is 0..1, `joules` a counter that began at any time; None where the device does not tell. `pods` (namespace, name)
    are those that it was given to; none where nobody has it, or the meter does not know.
    """

    uuid: str
    utilisation: float | None
    joules: float | None
    pods: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class PowerSample:
    """What a device's energy counter had come to at a time, and who read it."""

    time: datetime
    joules: float
    meter: EnergyMeter = EnergyMeter.EXPORTER


Drawn = tuple[PowerSample, ...]
"""A device's counter while one pod had the device, oldest first, always growing."""
