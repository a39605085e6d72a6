"""Our worker's own counters."""

from bench.worker.readiness import ask
from bench.worker.sides import Running

Counters = dict[str, float]


def scrape(server: Running) -> Counters:
    """Sums by metric name; empty for a side that is not ours."""
    if server.side.name != "ours":
        return {}
    status, body = ask(server.plan.http_port, b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n")
    counters: Counters = {}
    for line in body.decode().splitlines() if status == 200 else ():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            name = name.split("{")[0]
            counters[name] = counters.get(name, 0.0) + float(value)
    return counters
