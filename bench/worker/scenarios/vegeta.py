"""Our client beside vegeta: the same requests at the same constant rate against a queue with known service times (stub.py)."""

import json
import subprocess
import time
from base64 import b64encode
from pathlib import Path

import numpy as np

from bench.worker import requests
from bench.worker.installs import vegeta
from bench.worker.launch import STUB
from bench.worker.load import open_loop
from bench.worker.processes import CLIENT_CORE
from bench.worker.scenarios.context import Context, Record, digits, folder, noise
from bench.worker.sides import Running, running
from dev.console import say

# Three quarters of what the queue can serve.
_RATE, _SECONDS = 95, 4

# Long enough for the queue to take the next request for the first of a run.
_PAUSE_SECONDS = 1.0


def measure(_: Context) -> list[Record]:
    """A record for each round, with both clients' quantiles in milliseconds."""
    program = vegeta()
    records: list[Record] = []
    with folder() as place, running(STUB, digits(), place) as server:
        for number in range(3):
            trace = open_loop(server, "json", rate=_RATE, seconds=_SECONDS, arrivals="constant")
            p50, p99 = np.quantile(trace.latency * 1e3, (0.5, 0.99))
            time.sleep(_PAUSE_SECONDS)
            theirs = _attack(program, server, place)
            record = {
                "scenario": "vegeta",
                "round": number,
                **noise(),
                "rate": _RATE,
                "ours": [float(p50), float(p99)],
                "vegeta": theirs,
            }
            records.append(record)
            say(f"  client round {number}: ours p50 {p50:.2f} p99 {p99:.2f} ms, vegeta p50 {theirs[0]:.2f} p99 {theirs[1]:.2f} ms")
    return records


def _attack(program: Path, server: Running, place: Path) -> list[float]:
    side, model = server.side, server.plan.model
    targets = []
    for row in requests.feeds(model):
        body, headers = side.body_and_headers(model, row, "json")
        url = f"http://127.0.0.1:{server.plan.http_port}{side.path.format(name=model.name)}"
        header = {name: [value] for name, value in headers.items()}
        targets.append(json.dumps({"method": "POST", "url": url, "body": b64encode(body).decode(), "header": header}))
    (place / "targets").write_text("\n".join(targets) + "\n")
    command = ["taskset", "-c", str(CLIENT_CORE), str(program), "attack", "-format=json", f"-targets={place / 'targets'}"]
    command += [f"-rate={_RATE}/1s", f"-duration={_SECONDS}s", "-connections=64", f"-output={place / 'results'}"]
    subprocess.run(command, check=True)
    text = subprocess.run([str(program), "encode", "--to=json", str(place / "results")], check=True, capture_output=True).stdout
    results = [json.loads(line) for line in text.splitlines()]
    latency = [result["latency"] / 1e6 for result in results if result["code"] == 200]
    # From every single latency: vegeta's own report gives estimates.
    return [float(value) for value in np.quantile(latency, (0.5, 0.99))]
