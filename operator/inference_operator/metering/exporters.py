"""Asking NVIDIA's dcgm-exporter what the devices of a node are at.

It serves Prometheus text (docs.nvidia.com, "DCGM Exporter"): utilisation in percent, energy since the driver was loaded in
millijoules, with the labels `UUID` and, where it maps devices to pods, `namespace` and `pod`. What a device does not tell is left
out, or is one of DCGM's blank values, which are larger than any real one. Parts of a device (MIG) have a `GPU_I_ID`: their energy
is that of the whole, so they are passed over.
"""

from math import isfinite

from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from inference_operator.errors import ExporterError
from inference_operator.runtime.bounded_http import BoundedHttp, HttpFaultError
from inference_operator.state.power import Device

_UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
_ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
_PREFIXES = (_UTILISATION + "{", _ENERGY + "{")
# DCGM_INT64_BLANK: it and what is above say that, and why, there is no value.
_BLANK = 0x7FFFFFFFFFFFFFF0
# Sixteen devices with thirty series of 400 bytes are 200 KB; each device is listed once more for every pod that shares it.
_LONGEST_BYTES = 1 << 22
# Of what is parsed: 64 devices, two series of 1 KB each. A line with hundreds of labels takes milliseconds.
_MOST_LINES = 2048
_MOST_PARSED = 1 << 17
_SECONDS = 3.0


class Exporters:
    """An ExporterClient over plain HTTP inside the cluster."""

    def __init__(self, http: BoundedHttp, port: int) -> None:
        self._http = http
        self._port = port

    async def devices(self, address: str) -> tuple[Device, ...]:
        """See ExporterClient."""
        host = f"[{address}]" if ":" in address else address
        try:
            url = URL(f"http://{host}:{self._port}/metrics")
            answer = await self._http.get(url, seconds=_SECONDS, most_bytes=_LONGEST_BYTES)
        except (HttpFaultError, ValueError) as error:
            raise ExporterError(f"{address}: {error}") from error
        if answer.status != 200:
            raise ExporterError(f"{url} answered {answer.status}")
        return read_devices(answer.body.decode(errors="replace"))


def read_devices(text: str) -> tuple[Device, ...]:
    """The devices in an exporter's text, by uuid. Raises ExporterError for text that is none; odd values count as not told."""
    lines = [line for line in text.splitlines() if line.startswith(_PREFIXES)]
    if len(lines) > _MOST_LINES or sum(map(len, lines)) > _MOST_PARSED:
        raise ExporterError("more lines, or longer ones, than any node has devices for")
    utilisation: dict[str, float] = {}
    joules: dict[str, float] = {}
    pods: dict[str, set[tuple[str, str]]] = {}
    try:
        samples = [sample for family in text_string_to_metric_families("\n".join(lines)) for sample in family.samples]
    except (ValueError, IndexError, ArithmeticError) as error:
        # The parser of prometheus_client says these of lines that are cut short, and of numbers that are too large.
        raise ExporterError(f"not Prometheus text: {error}") from error
    for name, labels, value, *_ in samples:
        uuid = labels.get("UUID", "")
        if not uuid or labels.get("GPU_I_ID"):
            continue
        owners = pods.setdefault(uuid, set())
        if labels.get("pod") and labels.get("namespace"):
            owners.add((labels["namespace"], labels["pod"]))
        if name == _UTILISATION and 0 <= value <= 100:
            utilisation[uuid] = value / 100
        if name == _ENERGY and 0 <= value < _BLANK and isfinite(value):
            joules[uuid] = value / 1000
    return tuple(Device(uuid, utilisation.get(uuid), joules.get(uuid), frozenset(pods[uuid])) for uuid in sorted(pods))
