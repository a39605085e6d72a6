"""Resident memory over many good and many failing requests."""

import subprocess
from pathlib import Path

from bench.worker import requests
from bench.worker.processes import CLIENT_CORE
from bench.worker.scenarios.context import Context, Record, digits, folder
from bench.worker.sides import Running, running
from dev.console import say

_STEPS, _STEP = 5, 10_000


def measure(context: Context) -> list[Record]:
    """Resident MiB after each ten thousand requests: good ones, then ones whose tensor has the wrong shape."""
    side, model = context.ours, digits()
    with folder() as place, running(side, model, place) as server:
        row = requests.feeds(model, 1)[0]
        good, headers = side.body_and_headers(model, row, "binary")
        # One value short of what its head promises.
        bad = good[:-4]
        record: Record = {"scenario": "memory", "round": 0, "requestsEach": _STEPS * _STEP}
        for name, body, status in (("good", good, "2xx"), ("failing", bad, "4xx")):
            (place / name).write_bytes(body)
            readings = []
            for _ in range(_STEPS):
                counted = _send(server, place / name, headers)
                if counted[status] != _STEP:
                    raise RuntimeError(f"{name} requests were answered with {counted}")
                readings.append(round(server.started.memory_mib()[0], 2))
            record[name] = readings
        say(f"  memory: {record}")
    return [record]


def _send(server: Running, body: Path, headers: dict[str, str]) -> dict[str, int]:
    path = server.side.path.format(name=server.plan.model.name)
    command = ["taskset", "-c", str(CLIENT_CORE), "h2load", "--h1", "-c", "8", "-n", str(_STEP), "-d", str(body)]
    for name, value in headers.items():
        command += ["-H", f"{name}: {value}"]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{server.plan.http_port}{path}"], check=True, capture_output=True, text=True, timeout=120
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("status codes:"))
    counts = [part.split() for part in line.removeprefix("status codes:").split(",")]
    return {kind: int(count) for count, kind in counts}
