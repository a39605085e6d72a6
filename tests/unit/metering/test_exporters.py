"""Reading dcgm-exporter's text, and asking over real sockets. What answers is a stand-in with the documented text: no DCGM runs here."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.errors import ExporterError
from inference_operator.metering import exporters
from inference_operator.metering.exporters import Exporters, read_devices
from inference_operator.runtime.bounded_http import BoundedHttp
from inference_operator.state.power import Device
from tests.exporter_text import BLANK, Gpu, text

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def only(gpu: Gpu) -> Device:
    (device,) = read_devices(text([gpu]))
    return device


def test_a_device_with_its_pod() -> None:
    gpu = Gpu(percent=87, millijoules=319159391, pod=("default", "job-1"))

    assert only(gpu) == Device(gpu.uuid, 0.87, 319159.391, frozenset({("default", "job-1")}))


@pytest.mark.parametrize("number", [0, 1], ids=["no labels", "empty labels"])
def test_a_device_that_nobody_has(number: int) -> None:
    assert only(Gpu(number)).pods == frozenset()


def test_devices_that_are_shared_have_all_their_pods() -> None:
    (device,) = read_devices(text([Gpu(pod=("a", "x")), Gpu(pod=("b", "y"))]))

    assert device.pods == {("a", "x"), ("b", "y")}


def test_parts_of_devices_are_passed_over() -> None:
    assert read_devices(text([Gpu(part="7"), Gpu(1)])) == (Device(Gpu(1).uuid, 0.0, 0.0),)


@pytest.mark.parametrize("value", [BLANK, -1, float("nan"), float("inf"), 10**400])
def test_odd_values_count_as_not_told(value: float) -> None:
    device = only(Gpu(percent=value, millijoules=value))

    assert (device.utilisation, device.joules) == (None, None)


def test_what_is_left_out_is_not_told() -> None:
    assert only(Gpu(percent=None, millijoules=5000)) == Device(Gpu().uuid, None, 5.0)


def test_other_exporters_tell_of_no_devices() -> None:
    assert read_devices("# TYPE node_load1 gauge\nnode_load1 0.5\nDCGM_FI_DEV_GPU_UTIL_OF_ANOTHER_KIND 3\n") == ()


BROKEN = [
    'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1"',
    'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1"} much',
    'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1", ="x"} 3',
    'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1",UUID="GPU-2"} 3',
    'DCGM_FI_DEV_GPU_UTIL{UUID="' + "x" * 200_000 + '"} 3',
    'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1"} 3 1' + "0" * 400,
    'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1"} 3\n' * 3000,
]


@pytest.mark.parametrize("body", BROKEN, ids=["cut", "no number", "no name", "twice", "long", "timeless", "many"])
def test_what_is_no_prometheus_text_is_said(body: str) -> None:
    with pytest.raises(ExporterError):
        read_devices(body)


pieces = st.sampled_from(["DCGM_FI_DEV_GPU_UTIL{", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{", "UUID", '"', "=", ",", "}", "\\", " ",
                          "\n", "#", "1", "9" * 30, "NaN", "-", "pod", "namespace", "GPU_I_ID", "\t", "\r", "é", "{"])  # fmt: skip


@given(st.one_of(st.text(), st.lists(pieces).map("".join), st.lists(pieces).map(lambda p: "DCGM_FI_DEV_GPU_UTIL{" + "".join(p))))
def test_whatever_an_exporter_answers_is_devices_or_a_fault(body: str) -> None:
    try:
        devices = read_devices(body)
    except ExporterError:
        return
    for device in devices:
        assert device.uuid
        assert device.utilisation is None or 0 <= device.utilisation <= 1
        assert device.joules is None or 0 <= device.joules < float("inf")


gpus = st.builds(
    Gpu,
    number=st.integers(0, 99),
    percent=st.integers(0, 100),
    millijoules=st.integers(0, 2**60),
    pod=st.none() | st.tuples(st.just("ns"), st.from_regex("[a-z0-9]{1,20}", fullmatch=True)),
)


@given(st.lists(gpus, unique_by=lambda gpu: gpu.number))
def test_what_is_told_is_read(told: list[Gpu]) -> None:
    expected = {g.uuid: (g.percent, g.millijoules, frozenset([g.pod] if g.pod else [])) for g in told}

    found = {d.uuid: (d.utilisation, d.joules, d.pods) for d in read_devices(text(told))}

    assert found == {uuid: (percent / 100, energy / 1000, pods) for uuid, (percent, energy, pods) in expected.items()}  # type: ignore[operator]


# Over the wire.


async def _well(_: web.Request) -> web.Response:
    return web.Response(text=text([Gpu(percent=50, millijoules=2000)]))


async def asked(handler: Handler) -> tuple[Device, ...]:
    app = web.Application()
    app.router.add_get("/metrics", handler)
    app.router.add_get("/elsewhere", _well)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with BoundedHttp() as http:
            return await Exporters(http, runner.addresses[0][1]).devices("127.0.0.1")
    finally:
        await runner.cleanup()


def test_an_exporter_is_asked() -> None:
    assert asyncio.run(asked(_well)) == (Device(Gpu().uuid, 0.5, 2.0),)


async def _refuses(_: web.Request) -> web.Response:
    return web.Response(status=503)


async def _redirects(_: web.Request) -> web.Response:
    raise web.HTTPFound("/elsewhere")


async def _floods(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(200):
        await response.write(b"#" * (1 << 16))
    return response


async def _hangs(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def _no_text(_: web.Request) -> web.Response:
    return web.Response(body=b'DCGM_FI_DEV_GPU_UTIL{\xff"')


@pytest.mark.parametrize("handler", [_refuses, _redirects, _floods, _hangs, _no_text])
def test_a_broken_exporter_is_one_fault(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporters, "_SECONDS", 0.3)

    with pytest.raises(ExporterError):
        asyncio.run(asked(handler))


def test_nobody_there_is_one_fault() -> None:
    async def ask() -> None:
        async with BoundedHttp() as http:
            await Exporters(http, 1).devices("127.0.0.1")

    with pytest.raises(ExporterError):
        asyncio.run(ask())
