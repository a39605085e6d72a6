"""The operator's own HTTP face: /healthz, /readyz, /metrics."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import exposition

from inference_operator.observability import metrics
from inference_operator.runtime.clock import Clock


class Health:
    """Knows when each kind was last heard of, by a watch or a list."""

    def __init__(self, clock: Clock, *, silence_seconds: float) -> None:
        self._clock = clock
        self._silence = silence_seconds
        self._heard: dict[str, float] = {}
        self.synced = False

    def heard(self, kind: str) -> None:
        """A kind has spoken."""
        self._heard[kind] = self._clock.monotonic()

    def ages(self) -> dict[str, float]:
        """Seconds since each kind spoke."""
        now = self._clock.monotonic()
        return {kind: now - then for kind, then in self._heard.items()}

    @property
    def alive(self) -> bool:
        """Whether every kind was heard of lately: a silent one means a dead watch and a dead resync."""
        return all(age < self._silence for age in self.ages().values())


async def serve_health(health: Health, port: int, refresh: Callable[[], None]) -> web.AppRunner:
    """Serve; `refresh` brings gauges up to date before a scrape."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if health.alive else web.Response(status=503, text=f"silent: {health.ages()}\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if health.synced else web.Response(status=503, text="the first lists are not complete\n")

    async def scrape(_: web.Request) -> web.Response:
        refresh()
        for kind, age in health.ages().items():
            metrics.watch_age_seconds.labels(kind).set(age)
        body = exposition.generate_latest(metrics.REGISTRY)
        return web.Response(body=body, headers={"Content-Type": exposition.CONTENT_TYPE_PLAIN_0_0_4})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", scrape)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104
    return runner
