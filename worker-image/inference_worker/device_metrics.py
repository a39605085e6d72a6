"""The series of the device that a worker computes on, made when somebody scrapes."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from inference_protocol.messages import DeviceReading

_OF_DEVICE = ("uuid", "name", "driver", "compute_capability")
_ENERGY = "Energy that the device has drawn since its driver was loaded, whoever used it, joules."


class DeviceCollector(Collector):
    """Makes the series of the device that this worker computes on, when they are asked for; none, where it has no device."""

    def __init__(self, device: Callable[[], DeviceReading | None]) -> None:
        self._device = device

    def collect(self) -> Iterator[Metric]:
        """What the device does not tell has no series."""
        reading = self._device()
        if reading is None:
            return
        info = GaugeMetricFamily("inference_device_info", "1, with what the device is.", labels=_OF_DEVICE)
        info.add_metric((reading.uuid, reading.name, reading.driver, reading.compute_capability), 1)
        yield info
        for name, text, value in (
            ("inference_device_utilization_ratio", "Share of the last moment in which the device computed.", reading.utilization),
            ("inference_device_memory_used_bytes", "Memory of the device in use, whoever uses it.", reading.memory_used_bytes),
            ("inference_device_memory_total_bytes", "Memory of the device.", reading.memory_total_bytes),
            ("inference_device_power_watts", "What the device draws.", reading.watts),
            ("inference_device_reading_age_seconds", "How long ago the device's meters were read.", reading.age_seconds),
        ):
            if value is not None:
                family = GaugeMetricFamily(name, text, labels=_OF_DEVICE[:1])
                family.add_metric((reading.uuid,), value)
                yield family
        if reading.energy_joules is not None:
            counter = CounterMetricFamily("inference_device_energy_joules", _ENERGY, labels=_OF_DEVICE[:1])
            counter.add_metric((reading.uuid,), reading.energy_joules)
            yield counter


def device_sample() -> DeviceReading:
    """A device that tells everything, for whoever wants to know what there is."""
    return DeviceReading("", utilization=0, memory_used_bytes=0, memory_total_bytes=0, energy_joules=0, watts=0)
