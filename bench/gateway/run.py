"""What the gateway adds: one caller asks a worker directly and through Envoy by turns, over HTTP and gRPC.

The real Envoy with the chart's bootstrap, told by the operator's own control plane in this process, before one worker on the CPU.
"""

import asyncio
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb

from bench.proc import cpu_seconds, memory_mib
from bench.report import ROOT, Result, Target, at_most
from inference_operator.gateway.resources import Door, resources
from inference_operator.gateway.server import Word, serve
from inference_operator.gateway.snapshot import Backend, Service
from inference_protocol.messages import CONFIG_VARIABLE, GRPC_PORT, HTTP_PORT, ModelSource, WorkerConfig, encode
from tests import loopback
from tests.component import envoys
from tests.process import models

_REQUESTS = 2000
_WIDTH = 64
_ROWS = np.full((1, _WIDTH), 0.5, np.float32)
_BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, _WIDTH], "datatype": "FP32", "data": _ROWS.ravel().tolist()}]})
_PATIENCE_SECONDS = 60.0
# Milliseconds at p50.
_BOUNDS = {"http": 0.30, "grpc": 0.40}

Ask = Callable[[], None]


def run(rounds: int) -> Result:
    """So many rounds; a round asks each way so often."""
    with tempfile.TemporaryDirectory() as made:
        folder, address = Path(made), loopback.address(1)
        with _worker(folder, address), _envoy(folder, address) as envoy:
            asks = {
                "http": (_http(address, HTTP_PORT, ""), _http("127.0.0.1", envoy.door, "/bench")),
                "grpc": (_grpc(address, GRPC_PORT), _grpc("127.0.0.1", envoy.door)),
            }
            for ask in (one for pair in asks.values() for one in pair):
                _until(ask)
            found = [_round(protocol, *pair, envoy.process.pid) for _ in range(rounds or 5) for protocol, pair in asks.items()]
    return Result(found, [_target(found, protocol, bound) for protocol, bound in _BOUNDS.items()])


def _target(found: list[dict[str, Any]], protocol: str, bound: float) -> Target:
    added = statistics.median(one["addedMs"] for one in found if one["protocol"] == protocol)
    return at_most(protocol, f"milliseconds that Envoy adds to the p50 over {protocol}, one caller, median round", added, bound)


def _round(protocol: str, direct: Ask, through: Ask, envoy: int) -> dict[str, Any]:
    """One request each by turns, so that whatever else the machine does meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    before = cpu_seconds(envoy)
    for _ in range(_REQUESTS):
        for ask, taken in zip((direct, through), times, strict=True):
            begun = time.perf_counter()
            ask()
            taken.append(time.perf_counter() - begun)
    cpu = (cpu_seconds(envoy) - before) / _REQUESTS
    p50 = [statistics.median(taken) * 1000 for taken in times]
    p99 = [statistics.quantiles(taken, n=100)[98] * 1000 for taken in times]
    return {
        "protocol": protocol,
        "directP50Ms": round(p50[0], 3),
        "throughP50Ms": round(p50[1], 3),
        "addedMs": round(p50[1] - p50[0], 3),
        "directP99Ms": round(p99[0], 3),
        "throughP99Ms": round(p99[1], 3),
        "envoyCpuMicroseconds": round(cpu * 1e6),
        "envoyMib": round(memory_mib(envoy)[0]),
    }


def _http(host: str, port: int, base: str) -> Ask:
    connection = http.client.HTTPConnection(host, port)

    def ask() -> None:
        if connection.sock is None:
            connected = socket.create_connection((host, port))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock = connected
        connection.request("POST", f"{base}/v2/models/m/infer", _BODY, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise OSError(body)

    return ask


def _grpc(host: str, port: int) -> Ask:
    given = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, _WIDTH])
    message = pb.ModelInferRequest(model_name="m", inputs=[given], raw_input_contents=[_ROWS.tobytes()]).SerializeToString()
    call = grpc.insecure_channel(f"{host}:{port}").unary_unary("/inference.GRPCInferenceService/ModelInfer")

    def ask() -> None:
        call(message, timeout=5, metadata=(("inference-namespace", "bench"),))

    return ask


def _until(ask: Ask) -> None:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            ask()
            return
        except (OSError, http.client.HTTPException, grpc.RpcError):
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)


@contextmanager
def _worker(folder: Path, address: str) -> Iterator[None]:
    volume = folder / "volumes" / "data"
    volume.mkdir(parents=True)
    (volume / "model.onnx").write_bytes(models.slow(width=_WIDTH, steps=2))
    model = ModelSource(name="m", version="1", uri="pvc://data/model.onnx")
    config = WorkerConfig(namespace="bench", job="bench", uid="bench", attempt=1, model=model, providers=("CPUExecutionProvider",))
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("protocol", "worker-image")),
        "INFERENCE_ADDRESS": address,
        "INFERENCE_VOLUME_ROOT": str(folder / "volumes"),
        "INFERENCE_TERMINATION_PATH": str(folder / "report"),
        CONFIG_VARIABLE: encode(config).decode(),
    }
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "inference_worker"], env=variables, stdout=log, stderr=log, cwd=folder)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _envoy(folder: Path, address: str) -> Iterator[envoys.Envoy]:
    door, control = loopback.free_ports(2)
    word = Word()
    word.say(resources([Service("bench", "m", "1", True, (Backend(address, "a"),))], {}, Door(door, 1 << 26)))
    # An operator has nothing to do while nothing changes: a thread is enough.
    threading.Thread(target=lambda: asyncio.run(serve(word, control, lambda _: None)), daemon=True).start()
    envoy = envoys.start(folder, control=control, door=door)
    try:
        yield envoy
    finally:
        envoy.end()
