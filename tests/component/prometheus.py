"""A real Prometheus beside a test, which scrapes what it is told to."""

from __future__ import annotations

import json
import math
import subprocess
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp

from dev.packages import ensure_packages
from tests.loopback import free_ports

if TYPE_CHECKING:
    from pathlib import Path

SCRAPE_SECONDS = 0.5


@dataclass(frozen=True)
class Line:
    """One series: its labels, and (seconds since the start, value)."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Prometheus:
    """One process. `targets` may be written anew while it runs."""

    process: subprocess.Popen[bytes]
    url: str
    targets: Path

    def scrape(self, **addresses: list[str]) -> None:
        """Scrape these, by the label `job`."""
        self.targets.write_text(json.dumps([{"targets": found, "labels": {"job": job}} for job, found in addresses.items()]))

    async def has(self, session: aiohttp.ClientSession, expr: str) -> bool:
        """Whether an expression has a value now. One that still starts does not listen, and then answers 503."""
        try:
            async with session.get(f"{self.url}/-/ready") as answer:
                if answer.status != HTTPStatus.OK:
                    return False
            return bool(await self._ask(session, "query", query=expr))
        except aiohttp.ClientConnectionError:
            return False

    async def lines(self, session: aiohttp.ClientSession, expr: str, *, since: float, until: float) -> list[Line]:
        """All series of an expression in that time, without what is no number."""
        found = await self._ask(session, "query_range", query=expr, start=str(since), end=str(until), step="1")
        lines = []
        for series in found:
            points = [(float(at) - since, float(value)) for at, value in series["values"]]
            if points := [(at, value) for at, value in points if math.isfinite(value)]:
                lines.append(Line(series["metric"], points))
        return lines

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    async def _ask(self, session: aiohttp.ClientSession, path: str, **asked: str) -> list[Any]:
        async with session.post(f"{self.url}/api/v1/{path}", data=asked) as answer:
            told = await answer.json()
            assert told["status"] == "success", (asked, told)
            found: list[Any] = told["data"]["result"]
            return found


def start(folder: Path) -> Prometheus:
    """Start one that scrapes nothing yet."""
    ensure_packages(("prometheus",))
    folder.mkdir()
    (port,) = free_ports(1)
    targets, config = folder / "targets.json", folder / "prometheus.json"
    pace = f"{SCRAPE_SECONDS * 1e3:.0f}ms"
    discovery = [{"files": [str(targets)], "refresh_interval": "1s"}]
    scraping = {"job_name": "found", "honor_labels": True, "file_sd_configs": discovery}
    config.write_text(json.dumps({"global": {"scrape_interval": pace, "scrape_timeout": pace}, "scrape_configs": [scraping]}))
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    return Prometheus(process, f"http://127.0.0.1:{port}", targets)
