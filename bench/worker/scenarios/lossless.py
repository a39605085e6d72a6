"""What callers notice of a stop and of a reload: requests lost, answered twice, answered wrongly or with a 5xx must be none."""

import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.worker import requests
from bench.worker.client.spec import CUT_OFF, NOT_ANSWERED, REFUSED, RESET
from bench.worker.load import OpenLoop, Trace
from bench.worker.models import session
from bench.worker.readiness import ask
from bench.worker.scenarios.context import Context, Record, digits, folder, noise
from bench.worker.sides import Running, running
from dev.console import say

_RATE, _SECONDS = 1000.0, 6.0
_STOP_AT = 2.0
# How long endpoints keep naming a pod that is told to stop: new callers still come to it.
_ENDPOINT_LAG_SECONDS = 1.0
_RELOADS = 8
# Ten probabilities and a label; protobuf puts two bytes between them.
_TAIL_BYTES = {"binary": 48, "grpc": 50}
_EXTRA: dict[str, Any] = {"modelControl": "explicit"}


def drain(context: Context) -> list[Record]:
    """SIGTERM under load, with a second worker that takes over."""
    records = []
    for number in range(min(context.rounds, 3)):
        for protocol in ("binary", "grpc"):
            with folder() as place, running(context.ours, digits(), place / "a") as first:
                if protocol == "grpc" and not _speaks_grpc(first):
                    records.append({"scenario": "drain", "round": number, "protocol": protocol, "skipped": "no gRPC port"})
                    continue
                with running(context.ours, digits(), place / "b") as second:
                    ports = [(0.0, first.port(protocol)), (_STOP_AT + _ENDPOINT_LAG_SECONDS, second.port(protocol))]

                    def stop(server: Running = first) -> None:
                        time.sleep(_STOP_AT)
                        os.kill(server.started.process.pid, signal.SIGTERM)

                    trace = _under_load(first, protocol, ports, number, stop)
                    code = first.started.process.wait(30)
                record = {"scenario": "drain", "round": number, "protocol": protocol, "exitCode": code, **noise(), **_judged(trace)}
                records.append(record)
                say(f"  drain round {number}: {_line(record)}")
    return records


def reload(context: Context) -> list[Record]:
    """Loading the model again and again under load."""
    records = []
    request = requests.http(f"/v2/repository/models/{digits().name}/load", b"{}", {"Content-Type": "application/json"})
    for number in range(min(context.rounds, 3)):
        with folder() as place, running(context.ours, digits(), place, **_EXTRA) as server:
            status, body = ask(server.plan.http_port, request)
            if status != 200:
                return [{"scenario": "reload", "round": number, "skipped": f"load is answered with {status}: {body[:200]!r}"}]
            for protocol in ("binary", "grpc") if _speaks_grpc(server) else ("binary",):
                statuses: list[int] = []

                def load(found: list[int] = statuses, port: int = server.plan.http_port) -> None:
                    for _ in range(_RELOADS):
                        time.sleep(_SECONDS / (_RELOADS + 2))
                        found.append(ask(port, request)[0])

                trace = _under_load(server, protocol, [(0.0, server.port(protocol))], number, load)
                record = {"scenario": "reload", "round": number, "protocol": protocol, "loads": statuses}
                record |= {**noise(), **_judged(trace)}
                records.append(record)
                say(f"  reload round {number}: {_line(record)}")
    return records


def _speaks_grpc(server: Running) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.plan.grpc_port), 1).close()
    except OSError:
        return False
    return True


def _under_load(
    server: Running, protocol: str, ports: list[tuple[float, int]], number: int, meanwhile: Callable[[], None]
) -> Trace:
    spec: dict[str, Any] = {
        "protocol": protocol,
        "ports": ports,
        "rate": _RATE,
        "seconds": _SECONDS,
        "seed": number + 1,
        "path": requests.GRPC_PATH,
        "connections": 4 if protocol == "grpc" else 64,
        "tail_bytes": _TAIL_BYTES[protocol],
        "grace_seconds": 5.0,
    }
    with OpenLoop(spec, server.side.bodies(server.plan.model, protocol)) as client:
        meanwhile()
        return client.result()


def _judged(trace: Trace) -> Record:
    lost = np.isin(trace.status, (NOT_ANSWERED, CUT_OFF, RESET, REFUSED))
    return {
        "sent": int(trace.status.size),
        "lost": int(lost.sum()),
        "doubled": trace.doubled,
        "errors": int((trace.status >= 500).sum()),
        "wrong": _wrong(trace),
        "p99Ms": trace.summary()["p99Ms"],
        "worstMs": round(float(trace.latency.max()) * 1e3, 2),
        "statuses": trace.statuses(),
    }


def _wrong(trace: Trace) -> int:
    """Answers that are another request's: their last bytes are ten probabilities and a label."""
    model = digits()
    rows = requests.feeds(model)
    opened = session(model.path)
    expected = [opened.run(None, row)[0][0] for row in rows]
    given = np.ascontiguousarray(trace.tails[:, : 4 * 10]).view(np.float32)
    wanted = np.array([expected[number % len(rows)] for number in range(len(given))])
    off = ~np.isclose(given, wanted, rtol=1e-4, atol=1e-6).all(axis=1)
    return int((off & (trace.status == 200)).sum())


def _line(record: Record) -> str:
    return f"{record['protocol']:6} {record['sent']} sent, " + ", ".join(
        f"{record[k]} {k}" for k in ("lost", "doubled", "errors", "wrong")
    )
