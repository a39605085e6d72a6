"""`python -m bench.worker.client SPEC`: send what the file says, and leave what came of it."""

import gc
import sys
from pathlib import Path

from bench.worker.client.drive import Driver
from bench.worker.client.http1 import Http1
from bench.worker.client.http2 import Http2
from bench.worker.client.spec import Spec, load_requests


def main() -> int:
    """Run one spec."""
    spec = Spec.load(Path(sys.argv[1]))
    requests = load_requests(Path(spec.requests))
    # A collection in the middle would be measured as the server's latency.
    gc.disable()
    driver = Driver(spec)
    driver.run(Http2(driver, requests) if spec.protocol == "grpc" else Http1(driver, requests))
    driver.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
