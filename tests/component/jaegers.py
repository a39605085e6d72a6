"""A real Jaeger on loopback, and what its query API says of traces."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dev.tools import ensure
from tests.collectors import Seen
from tests.loopback import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PATIENCE_SECONDS = 30.0
# JSON is YAML.
_CONFIG: dict[str, Any] = {
    "service": {
        "extensions": ["jaeger_storage", "jaeger_query"],
        "pipelines": {"traces": {"receivers": ["otlp"], "processors": [], "exporters": ["jaeger_storage_exporter"]}},
        "telemetry": {"metrics": {"level": "none"}},
    },
    "exporters": {"jaeger_storage_exporter": {"trace_storage": "kept"}},
}


@dataclass
class Jaeger:
    """One process. `url` is where it takes spans by OTLP over HTTP."""

    url: str
    query: str

    def of(self, trace: str) -> list[Seen]:
        """The spans of one trace; none of one that it doesn't know."""
        try:
            (found,) = self._ask(f"/api/traces/{trace}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return []
        services = {name: process["serviceName"] for name, process in found["processes"].items()}
        return [_seen(span, services[span["processID"]]) for span in found["spans"]]

    def traces(self, service: str, *, limit: int) -> dict[str, int]:
        """How many spans each trace has in which a service takes part."""
        return {found["traceID"]: len(found["spans"]) for found in self._ask(f"/api/traces?service={service}&limit={limit}")}

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            self._ask("/api/services")
        except OSError:
            return False
        return True

    def _ask(self, path: str) -> list[Any]:
        with urllib.request.urlopen(self.query + path, timeout=_PATIENCE_SECONDS) as answer:
            return json.load(answer)["data"] or []


def _seen(span: dict[str, Any], service: str) -> Seen:
    parents = [one["spanID"] for one in span["references"] if one["refType"] == "CHILD_OF" and one["traceID"] == span["traceID"]]
    others = [(one["traceID"], one["spanID"]) for one in span["references"] if one["refType"] == "FOLLOWS_FROM"]
    return Seen(
        service,
        span["operationName"],
        span["traceID"],
        span["spanID"],
        parents[0] if parents else "",
        span["startTime"],
        span["startTime"] + span["duration"],
        {tag["key"]: tag["value"] for tag in span["tags"]},
        tuple(others),
    )


@contextmanager
def jaeger(folder: Path) -> Iterator[Jaeger]:
    """One that keeps traces in its memory while the block runs."""
    otlp, http, grpc = (f"127.0.0.1:{port}" for port in free_ports(3))
    config = {
        **_CONFIG,
        "extensions": {
            "jaeger_storage": {"backends": {"kept": {"memory": {"max_traces": 100_000}}}},
            "jaeger_query": {"storage": {"traces": "kept"}, "http": {"endpoint": http}, "grpc": {"endpoint": grpc}},
        },
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": otlp}}}},
    }
    file = folder / "jaeger.yaml"
    file.write_text(json.dumps(config))
    log = folder / "jaeger.log"
    with log.open("wb") as target:
        process = subprocess.Popen([str(ensure("jaeger") / "jaeger"), "--config", str(file)], stdout=target, stderr=target)
    try:
        made, give_up = Jaeger(f"http://{otlp}", f"http://{http}"), time.monotonic() + _PATIENCE_SECONDS
        while not made.ready():
            assert process.poll() is None and time.monotonic() < give_up, log.read_text()[-3000:]
            time.sleep(0.05)
        yield made
    finally:
        process.kill()
        process.wait()
