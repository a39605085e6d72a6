"""Asks the exporters of devices' meters, at a steady pace: what workers' devices draw, and who else uses a node's devices."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from inference_operator.errors import ExporterError
from inference_operator.kube.ports import ExporterClient
from inference_operator.metering.energy import taken_in
from inference_operator.metering.usage import unmanaged_usage
from inference_operator.observability import metrics
from inference_operator.runtime.clock import Clock
from inference_operator.settings import Metering
from inference_operator.state.node_caches import NodeAgent
from inference_operator.state.objects import Key
from inference_operator.state.power import Device, PowerSample
from inference_operator.state.store import Store

log = logging.getLogger(__name__)

_AT_ONCE = 16


class Meters:
    """What the meters say, kept in the store. One that is broken costs a line and a count, and is asked again."""

    def __init__(self, store: Store, exporters: ExporterClient, clock: Clock, settings: Metering) -> None:
        self._store = store
        self._exporters = exporters
        self._clock = clock
        self._settings = settings
        self._gate = asyncio.Semaphore(_AT_ONCE)
        # The counters of the last round, by node and device: one that stands still was not read anew, and has no time.
        self._counters: dict[tuple[str, str], float] = {}
        self._silent: set[Key] = set()

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await asyncio.sleep(self._settings.seconds)
            try:
                await self.round()
            except Exception:
                # Whatever an exporter has said, jobs go on without it.
                log.exception("a round of the meters failed")
                metrics.exporter_errors_total.inc()

    async def round(self) -> None:
        """Ask every node's exporter once."""
        # Of two that watch one node nobody knows which to believe.
        watched = Counter(exporter.node for exporter in self._store.exporters.values())
        of_nodes = {exporter.node: key for key, exporter in sorted(self._store.exporters.items()) if watched[exporter.node] == 1}
        self._silent &= set(of_nodes.values())
        answers = await asyncio.gather(*(self._ask(key, self._store.exporters[key]) for key in of_nodes.values()))
        told = {node: answer for node, answer in zip(of_nodes, answers, strict=True) if answer is not None}
        for node, (devices, time) in told.items():
            self._take(node, devices, time)
        found = {node: devices for node, (devices, _) in told.items()}
        self._counters = {
            (node, device.uuid): device.joules for node, devices in found.items() for device in devices if device.joules is not None
        }
        held = self._held(found)
        self._store.unmanaged_usage = {
            node: value for node, devices in found.items() if (value := unmanaged_usage(devices, held[node]))
        }

    async def _ask(self, key: Key, exporter: NodeAgent) -> tuple[tuple[Device, ...], datetime] | None:
        """Its devices, and when it told them: a round may take as long as its slowest exporter."""
        try:
            async with self._gate:
                devices = await self._exporters.devices(exporter.address)
        except ExporterError as error:
            metrics.exporter_errors_total.inc()
            log.log(logging.DEBUG if key in self._silent else logging.WARNING, "exporter %s on %s: %s", key, exporter.node, error)
            self._silent.add(key)
            return None
        self._silent.discard(key)
        return devices, self._clock.now()

    def _take(self, node: str, devices: tuple[Device, ...], time: datetime) -> None:
        """Add to what workers have drawn. Devices that several pods share, or could, tell of none of them."""
        known = self._store.nodes.get(node)
        if known is None or known.allocatable.get(self._settings.resource_name, 0) != len(devices):
            return
        there = {device.uuid for device in devices}
        for device in devices:
            before = self._counters.get((node, device.uuid))
            if device.joules is None or before is None or device.joules == before or len(device.pods) != 1:
                continue
            pod = self._store.pods.get(Key(*next(iter(device.pods))))
            if pod is None or pod.worker is None or not pod.uid or pod.node != node:
                continue
            watched = self._store.meters.get(pod.uid, {})
            meters = self._store.meters[pod.uid] = {uuid: drawn for uuid, drawn in watched.items() if uuid in there}
            meters[device.uuid] = taken_in(meters.get(device.uuid, ()), PowerSample(time, device.joules))

    def _held(self, nodes: Mapping[str, object]) -> Counter[str]:
        """How many devices the pods of these nodes hold by their requests."""
        held: Counter[str] = Counter()
        for pod in self._store.pods.values() if nodes else ():
            if pod.node is not None and pod.node in nodes and not pod.terminal:
                held[pod.node] += pod.requests.get(self._settings.resource_name, 0)
        return held
