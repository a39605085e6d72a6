"""From an exporter's socket to the energy of a batch, with the operator's own parts.

What answers is a stand-in that serves dcgm-exporter's documented text of made-up numbers: no NVIDIA DCGM can run here.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from aiohttp import web

from inference_operator.api.job_status import EnergySource
from inference_operator.controllers.informer import InformerHandlers
from inference_operator.controllers.scheduling_loop import SchedulingLoop
from inference_operator.metering.controller import Meters
from inference_operator.metering.energy import energy_status
from inference_operator.metering.exporters import Exporters
from inference_operator.runtime.bounded_http import BoundedHttp
from inference_operator.settings import Metering
from inference_operator.state.objects import Key
from inference_operator.state.request import Request
from inference_operator.state.runner import own_attempt
from inference_operator.state.store import Store
from inference_operator.warmpools.controller import Pools
from tests.builders import GPU, NOW, SETTINGS, TOKENS, a_job, a_node, a_pod
from tests.clock import Clock
from tests.exporter_text import Gpu, text
from tests.unit.state.raw import raw_pod

WATTS = 120.0


def nobody(_request: Request, /, *, urgent: bool = False) -> None:
    """Is woken for nothing."""


@dataclass
class StandIn:
    """An exporter whose device draws the same all the time."""

    clock: Clock
    pod: tuple[str, str]
    broken: bool = False

    async def answer(self, _: web.Request) -> web.Response:
        if self.broken:
            return web.Response(status=500)
        joules = 5e6 + WATTS * self.clock.seconds
        return web.Response(text=text([Gpu(percent=93, millijoules=round(joules * 1000), pod=self.pod), Gpu(1, percent=71)]))


@dataclass
class Site:
    """A node with two devices, a worker on one of them, and the exporter's pod as the API server shows it."""

    port: int
    http: BoundedHttp
    clock: Clock
    exporter: StandIn
    store: Store = field(default_factory=Store)

    def __post_init__(self) -> None:
        metering = Metering(port=self.port, namespaces=())
        fleet = SchedulingLoop(self.store, Pools(self.store, SETTINGS, self.clock, TOKENS), SETTINGS, self.clock, nobody)
        self.informer = InformerHandlers(self.store, fleet, nobody, metering=metering)
        self.meters = Meters(self.store, Exporters(self.http, self.port), self.clock, metering)
        self.store.nodes["gpu-1"] = a_node("gpu-1", gpu=2)
        job = a_job(gpu=1)
        pod = a_pod(job, node="gpu-1", accelerator="gpu")
        self.pod = replace(pod, requests={**pod.requests, GPU: 1}, started=NOW)
        self.store.put_pod(self.pod)
        self.informer.pod(exporter_pod(), gone=False)

    async def watch(self, seconds: float) -> None:
        """Rounds at the usual pace."""
        for _ in range(int(seconds / 10)):
            self.clock.seconds += 10
            await self.meters.round()


def exporter_pod() -> dict[str, object]:
    found = raw_pod(labels={"app.kubernetes.io/name": "dcgm-exporter"}, status={"phase": "Running", "podIP": "127.0.0.1"})
    found["spec"]["nodeName"] = "gpu-1"
    return found


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    clock = Clock(-20.0)
    job = a_job(gpu=1)
    exporter = StandIn(clock, (job.key.namespace, a_pod(job).key.name))
    app = web.Application()
    app.router.add_get("/metrics", exporter.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with BoundedHttp() as http:
        yield Site(runner.addresses[0][1], http, clock, exporter)
    await runner.cleanup()


async def test_a_batch_is_told_what_its_device_drew(site: Site) -> None:
    await site.watch(320)

    energy = energy_status(
        own_attempt(site.pod), site.store.meters[site.pod.uid], None, None, SETTINGS, NOW + timedelta(seconds=305)
    )

    assert energy is not None
    assert energy.source is EnergySource.MEASURED
    assert energy.joules == pytest.approx(305 * WATTS, rel=1e-6)


async def test_a_device_in_unmanaged_use_is_seen(site: Site) -> None:
    await site.watch(10)

    assert site.store.unmanaged_usage == {"gpu-1": 0.7}


async def test_an_exporter_that_breaks_leaves_what_it_said_and_is_asked_again(site: Site) -> None:
    await site.watch(200)
    known = site.store.meters[site.pod.uid]
    site.exporter.broken = True
    await site.watch(50)
    assert site.store.meters[site.pod.uid] == known
    assert site.store.unmanaged_usage == {}

    site.exporter.broken = False
    await site.watch(50)

    assert site.store.unmanaged_usage == {"gpu-1": 0.7}
    # What was drawn in between is in the counter.
    energy = energy_status(
        own_attempt(site.pod), site.store.meters[site.pod.uid], None, None, SETTINGS, NOW + timedelta(seconds=280)
    )
    assert energy is not None and energy.source is EnergySource.MEASURED
    assert energy.joules == pytest.approx(280 * WATTS, rel=1e-6)


async def test_an_exporter_that_is_gone_is_not_asked(site: Site) -> None:
    site.informer.pod(exporter_pod(), gone=True)
    await site.watch(50)

    assert site.store.exporters == {}
    assert site.store.meters == {}


@pytest.mark.parametrize(
    "change",
    [
        {"metering": Metering(enabled=False)},
        {"metering": Metering(namespaces=("gpu-operator",))},
        {"labels": {"app": "something-else"}},
        {"status": {"phase": "Pending", "podIP": "127.0.0.1"}},
        {"status": {"phase": "Running"}},
    ],
    ids=["off", "another namespace", "other labels", "not running", "no address"],
)
async def test_what_is_no_exporter(site: Site, change: dict[str, object]) -> None:
    metering = change.get("metering", Metering())
    assert isinstance(metering, Metering)
    informer = InformerHandlers(site.store, site.informer._scheduling, nobody, metering=metering)
    pod = exporter_pod()
    pod["metadata"]["resourceVersion"] = "8"  # type: ignore[index]
    if "labels" in change:
        pod["metadata"]["labels"] = change["labels"]  # type: ignore[index]
    pod["status"] = change.get("status", pod["status"])

    informer.pod(pod, gone=False)

    assert Key("default", "pod") not in site.store.exporters
