"""Takes in what workers say of their own devices (by NVML): their energy counters, where no exporter watches the node."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from inference_operator.api.job_status import EnergyMeter
from inference_operator.metering.energy import taken_in
from inference_operator.state.objects import Node, Pod, Reading
from inference_operator.state.power import PowerSample
from inference_operator.state.store import Store
from inference_protocol.messages import DeviceReading, Telemetry

# Set by NVIDIA's device plugin or GPU feature discovery: `none`, `time-slicing` or `mps`.
_SHARING = "nvidia.com/gpu.sharing-strategy"
# More than any worker lives; a worker's word may be larger than dates can take.
_OLDEST_SECONDS = 1e8


class WorkerMeters:
    """What workers' devices have drawn, kept in the store. One that several pods have, or could have, tells of none of them."""

    def __init__(self, store: Store, resource: str) -> None:
        """`resource` is what nodes and pods count devices by."""
        self._store = store
        self._resource = resource

    def round(self, answers: Mapping[str, Telemetry | None]) -> None:
        """Take in one round: what each running worker answered, by its pod's uid; None when it did not."""
        watched = {exporter.node for exporter in self._store.exporters.values()}
        told = [
            (pod, reading, device)
            for pod in self._store.pods.values()
            if answers.get(pod.uid) is not None
            and (reading := self._store.readings.get(pod.uid)) is not None
            and (device := reading.telemetry.device) is not None
        ]
        sharers = Counter((pod.node, device.uuid) for pod, _, device in told)
        for pod, reading, device in told:
            if pod.node in watched:
                continue
            if sharers[pod.node, device.uuid] == 1 and self._has_one_alone(pod):
                self._take(pod, reading, device)
            else:
                # Whatever comes later, a part of the time was not this worker's own.
                self._store.meters.pop(pod.uid, None)

    def _has_one_alone(self, pod: Pod) -> bool:
        node = self._store.nodes.get(pod.node) if pod.node is not None else None
        return node is not None and pod.requests.get(self._resource, 0) == 1 and not _is_shared(node)

    def _take(self, pod: Pod, reading: Reading, device: DeviceReading) -> None:
        if device.energy_joules is None:
            return
        drawn = self._store.meters.get(pod.uid, {}).get(device.uuid, ())
        if drawn and drawn[-1].joules == device.energy_joules:
            # Every device draws something all the time: this was not read anew.
            return
        read = reading.time - timedelta(seconds=min(device.age_seconds, _OLDEST_SECONDS))
        sample = PowerSample(read, device.energy_joules, EnergyMeter.WORKER)
        self._store.meters[pod.uid] = {device.uuid: taken_in(drawn, sample)}


def _is_shared(node: Node) -> bool:
    return node.labels.get(_SHARING, "none") != "none"
