"""A stand-in for dcgm-exporter on every simulated node with one GPU: real text of made-up draws, read by the real reader."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from inference_operator.api import names
from inference_operator.errors import ExporterError
from inference_operator.metering.exporters import read_devices
from inference_operator.state.power import Device
from tests.exporter_text import Gpu, text
from tests.simulation.api import At, Raw, SimulatedApi
from tests.simulation.virtual_time import START

GPU = "nvidia.com/gpu"


@dataclass
class SimulatedExporters:
    """See ExporterClient. A device draws `busy` watts while a worker's container runs on it, else `idle`.

    `grain` is how often the exporter itself looks; `silent` tells at which seconds it does not answer.
    """

    busy: float = 120.0
    idle: float = 40.0
    grain: float = 1.0
    silent: tuple[float, float] = (0.0, 0.0)
    api: SimulatedApi = field(default_factory=lambda: SimulatedApi(None))
    # When containers that had the device ran, by their pods' uids; pods are forgotten, what they drew is not.
    _ran: dict[str, dict[str, tuple[float, float | None]]] = field(default_factory=dict)

    def install(self, api: SimulatedApi, *nodes: str) -> None:
        """A pod of the exporter's on each node, as its chart makes them."""
        self.api = api
        for node in nodes:
            labels = {"app.kubernetes.io/name": "dcgm-exporter", names.LABEL_MODEL: "none"}
            status = {"phase": "Running", "podIP": node}
            raw = {"metadata": {"name": f"dcgm-{node}", "labels": labels}, "spec": {"nodeName": node}, "status": status}
            api.put(At("pods", "gpu-operator", f"dcgm-{node}"), raw)

    async def devices(self, address: str) -> tuple[Device, ...]:
        """An address is a node's name."""
        now = asyncio.get_running_loop().time()
        if self.silent[0] <= now < self.silent[1]:
            raise ExporterError("silent")
        ran, owner = self._ran.setdefault(address, {}), None
        for raw in self.api.all("pods").values():
            span = _span(raw)
            if raw["spec"].get("nodeName") == address and _devices(raw) and span is not None:
                ran[raw["metadata"]["uid"]] = span
                if span[1] is None:
                    owner = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        seen = now - now % self.grain
        held = sum(max(0.0, min(seen, seen if end is None else end) - begin) for begin, end in ran.values())
        joules = 1e6 + self.idle * seen + (self.busy - self.idle) * held
        return read_devices(text([Gpu(percent=90 if owner else 0, millijoules=round(joules * 1000), pod=owner)]))


def _devices(raw: Raw) -> int:
    return sum(int(c.get("resources", {}).get("limits", {}).get(GPU, 0)) for c in raw["spec"].get("containers", ()))


def _span(raw: Raw) -> tuple[float, float | None] | None:
    """From when to when a worker's container ran."""
    for container in raw["status"].get("containerStatuses", ()):
        state = container["state"]
        if "running" in state:
            return _seconds(state["running"]["startedAt"]), None
        if "terminated" in state:
            return _seconds(state["terminated"]["startedAt"]), _seconds(state["terminated"]["finishedAt"])
    return None


def _seconds(text: str) -> float:
    return (datetime.fromisoformat(text) - START).total_seconds()
