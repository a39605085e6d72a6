"""What workers of each accelerator class draw, beside what the settings declare: so that the settings can be put right."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import fmean

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_NAME = "inference_accelerator_watts"
_TEXT = "Watts of one worker: declared for a busy one, and measured by its devices' meters as the mean of all workers, busy or not."


class DeviceCollector(Collector):
    """Reads `watts` at each scrape: what each worker with meters draws now, by accelerator class."""

    def __init__(self, declared: Mapping[str, float], watts: Callable[[], Iterable[tuple[str, float]]]) -> None:
        self._declared = declared
        self._watts = watts

    def collect(self) -> Iterator[Metric]:
        """One series for each class and source."""
        family = GaugeMetricFamily(_NAME, _TEXT, labels=("accelerator", "source"))
        found: dict[str, list[float]] = {}
        for accelerator, watts in self._watts():
            found.setdefault(accelerator, []).append(watts)
        for accelerator, declared in self._declared.items():
            family.add_metric((accelerator, "declared"), declared)
            if accelerator in found:
                family.add_metric((accelerator, "measured"), fmean(found[accelerator]))
        yield family
