"""What a node's cache costs and saves: memory while 5 GB are fetched, and a worker's start with a model of 1 GB from it.

The start needs the local cluster with `nodeCache.enabled`; without one, only the fetch is measured. A start is the time from the
pod until it is ready, as a watch shows it. Pods of a model of 1 MiB, and of one of 1 GiB, both from the cache, take turns.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from statistics import median
from typing import Any

from bench import proc
from bench.nodecache import starts
from bench.report import Result, at_most
from inference_protocol.messages import ModelSource
from tests.process.node_caches import NodeCache
from tests.web import serving

_FETCHED_BYTES = 5 << 30
_SECONDS = 600.0


def run(rounds: int) -> Result:
    """The fetch once; starts, so many times."""
    fetch = _fetch()
    found: list[dict[str, Any]] = [{"fetch": fetch}]
    targets = [at_most("memory", "MiB more while 5 GiB are fetched", fetch["moreMebibytes"], 64)]
    if (measured := starts.measure(rounds or 5)) is not None:
        found += measured
        cached, bare = (median(one[kind] for one in measured) for kind in ("cachedSeconds", "bareSeconds"))
        targets.append(at_most("start", "start with 1 GiB from the cache, over one without a model to load", cached / bare, 1.5))
    return Result(found, targets)


def _fetch() -> dict[str, float]:
    """Have a cache prefetch a file; returns its peak of memory over what it had before, and the seconds."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        root = Path(folder)
        with (root / "large.bin").open("wb") as file:
            file.truncate(_FETCHED_BYTES)
        digest = f"sha256:{subprocess.check_output(['sha256sum', str(root / 'large.bin')], text=True).split()[0]}"
        with _served(root) as port:
            cache = NodeCache(root, limit=_FETCHED_BYTES + (1 << 30))
            try:
                before, _ = proc.memory_mib(cache.process.pid)
                begun = time.monotonic()
                source = ModelSource("large", "1", f"http://localhost:{port}/large.bin", digest)
                _until(lambda: _state(cache, source) == "Cached")
                seconds = time.monotonic() - begun
                _, peak = proc.memory_mib(cache.process.pid)
            finally:
                cache.kill()
    return {"moreMebibytes": peak - before, "beforeMebibytes": before, "seconds": seconds}


def _state(cache: NodeCache, source: ModelSource) -> str:
    _, state = cache.order(("team", source))
    assert state is not None
    (model,) = state.models
    if model.state == "Failed":
        raise RuntimeError(model.message)
    return model.state


def _until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _SECONDS
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError("the cache did not fetch the file")
        time.sleep(0.2)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def _served(folder: Path) -> AbstractContextManager[int]:
    return serving(partial(_Quiet, directory=str(folder)))
