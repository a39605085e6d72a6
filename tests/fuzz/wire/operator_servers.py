"""The operator's servers in a process of their own: the metrics API over TLS, KEDA's scaler, and /metrics with /healthz.

`python -m tests.fuzz.wire.operator_servers FOLDER` serves until it is ended; `FOLDER/ready` has their ports as JSON, `FOLDER/ca.pem` the CA.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from inference_operator.autoscaling.keda.server import KedaScaler
from inference_operator.observability import logs
from inference_operator.observability.health import Health, serve_health
from inference_operator.runtime.clock import SystemClock
from inference_operator.settings import KedaScalerSettings, Settings
from inference_operator.state.load import Recommendation, ScalingMetrics, Workers
from tests.builders import a_load
from tests.loopback import free_ports
from tests.unit.autoscaling.metricsapi.test_server import Bench


async def serve(folder: Path) -> None:
    """Serve for ever."""
    bench, clock = Bench(folder), SystemClock()
    (job,) = bench.store.jobs.values()
    bench.store.scaling_metrics[job.uid] = ScalingMetrics(clock.monotonic() + 1e6, a_load(0.25), Workers(1, 1), Recommendation(2))
    scaler = KedaScaler(bench.store, clock, Settings(keda_scaler=KedaScalerSettings(enabled=True, port=0)))
    health = Health(clock, silence_seconds=1e6)
    health.synced = True
    (port,) = free_ports(1)
    runner = await serve_health(health, port, lambda: None)
    tasks = [asyncio.create_task(bench.service.serve()), asyncio.create_task(scaler.serve()), asyncio.create_task(_forget(bench))]
    await bench.serving()
    while not scaler.port:
        await asyncio.sleep(0.01)
    (folder / "ca.pem").write_text(bench.ca)
    ports = {"metrics": bench.service._port, "keda": scaler.port, "health": port}
    (folder / "starting").write_text(json.dumps(ports))
    (folder / "starting").rename(folder / "ready")
    try:
        await asyncio.gather(*tasks)
    finally:
        await runner.cleanup()


async def _forget(bench: Bench) -> None:
    """The API server of tests notes what it is asked; here that would be all that grows."""
    while True:
        bench.kube.asked.clear()
        await asyncio.sleep(1)


if __name__ == "__main__":
    logs.set_up("info")
    asyncio.run(serve(Path(sys.argv[1])))
