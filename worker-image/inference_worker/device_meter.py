"""Reads the meters of this worker's device at a steady pace, on a thread of its own: whoever asks gets the newest values at once.

Some meters take milliseconds, and a device that the driver has lost takes for ever: neither may hold up the event loop.
"""

import threading
import time
from collections.abc import Callable

import msgspec

from inference_protocol.messages import DeviceReading, WorkerConfig
from inference_worker import device, nvml

_SECONDS = 1.0


def find() -> nvml.Meter | None:
    """The meter of the device that this process computes on; None where there is none."""
    identity = device.identity()
    return nvml.meter_of(identity) if identity is not None else None


def meter_for(config: WorkerConfig) -> "DeviceMeter | None":
    """What reads the meters of a worker's device; None for one that computes on CPUs, or not itself."""
    return DeviceMeter(find) if device.computes_on_device(config) else None


class DeviceMeter:
    """The newest reading. Its thread ends by itself where there is nothing to read, and with the process."""

    def __init__(self, find: Callable[[], nvml.Meter | None], *, seconds: float = _SECONDS) -> None:
        self._find = find
        self._seconds = seconds
        self._newest: tuple[DeviceReading, float] | None = None
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="meter", daemon=True).start()

    def _run(self) -> None:
        meter = self._find()
        while meter is not None and not self._stopped.is_set():
            self._newest = meter(), time.monotonic()
            self._stopped.wait(self._seconds)

    @property
    def newest(self) -> DeviceReading | None:
        """What was read last, and how long ago that was; None before there is anything."""
        if self._newest is None:
            return None
        reading, read = self._newest
        return msgspec.structs.replace(reading, age_seconds=round(time.monotonic() - read, 3))

    def close(self) -> None:
        """Read no more. A reading that hangs ends with the process."""
        self._stopped.set()
