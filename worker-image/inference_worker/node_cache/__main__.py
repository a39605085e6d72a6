"""`python -m inference_worker.node_cache`: the cache of one node. Its configuration comes in the environment."""

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

import msgspec

from inference_protocol.node_cache import CONFIG_VARIABLE, METRICS_PORT, PORT, CacheConfig
from inference_worker.node_cache.bounded_server import BoundedServer
from inference_worker.node_cache.flights import Flights
from inference_worker.node_cache.metrics import Metrics
from inference_worker.node_cache.prefetch import FETCHERS, Prefetcher
from inference_worker.node_cache.server import Handler, MetricsHandler
from inference_worker.node_cache.store import ModelStore

log = logging.getLogger("inference_worker.node_cache")

_ENDS = frozenset({signal.SIGTERM, signal.SIGINT})
_PORT_VARIABLES = (("INFERENCE_NODE_CACHE_PORT", PORT), ("INFERENCE_NODE_CACHE_METRICS_PORT", METRICS_PORT))


def main() -> int:
    """Serve until told to stop; returns the exit code."""
    # Before there are threads, which inherit it: one of them would be ended by the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    try:
        config = msgspec.json.decode(os.environ.get(CONFIG_VARIABLE, ""), type=CacheConfig)
        store = ModelStore(Path(config.folder), limit=config.limit_bytes, shared=config.shared, now=time.time)
    except (msgspec.DecodeError, msgspec.ValidationError, OSError) as error:
        log.error("%s: %s", CONFIG_VARIABLE, error)
        return 2
    metrics, flights = Metrics(store), Flights()
    prefetcher = Prefetcher(store, flights, metrics, config.fetch_from)
    ports = [int(os.environ.get(name, port)) for name, port in _PORT_VARIABLES]
    told = {"metrics": metrics, "key": staticmethod(Key(config.key_file))}
    given = {**told, "store": store, "flights": flights, "prefetcher": prefetcher}
    servers = [
        BoundedServer(("", ports[0]), type("Bound", (Handler,), given)),
        BoundedServer(("", ports[1]), type("Bound", (MetricsHandler,), told)),
    ]
    for work in (*(server.serve_forever for server in servers), *[prefetcher.run] * FETCHERS):
        threading.Thread(target=work, daemon=True).start()
    log.info("serving %d models on port %d", store.models, servers[0].server_port)
    signal.sigwait(_ENDS)
    return 0


class Key:
    """The key of tokens and orders, read anew when its file changes: the operator makes it after the Secret is mounted."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._known = (0, b"")

    def __call__(self) -> bytes:
        """The key. Raises OSError while there is none."""
        changed = self._path.stat().st_mtime_ns
        if changed != self._known[0]:
            self._known = changed, self._path.read_bytes()
        if not self._known[1]:
            raise FileNotFoundError(f"{self._path} is empty")
        return self._known[1]


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # Threads of connections hold nobody back: what they have not finished has no name yet.
    os._exit(code)
