"""The worker with some of its constants replaced: `python -m tests.process.patched`, in a process of its own.

PATCHES is a JSON object of "module:attribute" to a value; waits that are seconds in a cluster need not be seconds here.
"loopback allowed" lets workers fetch from this machine. "die before sync" is the number of the fsync that the process does not live to see.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import sys

DIE_BEFORE_SYNC = "die before sync"
LOOPBACK_ALLOWED = "loopback allowed"
PATCHES_VARIABLE = "PATCHES"


def die_before_sync(number: int) -> None:
    """End this process as the kernel would for lack of memory, in front of its fsync of this number (from 1)."""
    real, left = os.fsync, number

    def fsync(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        real(descriptor)

    os.fsync = fsync  # type: ignore[assignment]


def allow_loopback() -> None:
    """Let fetches through to this machine's loopback, and nowhere else that is forbidden: tests have no other network."""
    outbound = importlib.import_module("inference_worker.outbound")
    real = outbound.forbidden_address
    outbound.forbidden_address = lambda address: None if address.is_loopback else real(address)  # type: ignore[attr-defined]


def main() -> int:
    """The worker; with arguments, one of its frontends."""
    from inference_worker import __main__ as worker
    from inference_worker.frontends import __main__ as frontend
    from inference_worker.frontends import supervisor

    patches = json.loads(os.environ[PATCHES_VARIABLE])
    if number := patches.pop(DIE_BEFORE_SYNC, 0):
        die_before_sync(number)
    if patches.pop(LOOPBACK_ALLOWED, False):
        allow_loopback()
    for target, value in patches.items():
        module, attribute = target.split(":")
        owner = importlib.import_module(module)
        if not hasattr(owner, attribute):
            raise AttributeError(f"{target} is gone: bring the tests up to date")
        setattr(owner, attribute, value)
    if sys.argv[1:]:
        frontend.main(sys.argv[1:])
        return 0
    supervisor.MODULE = "tests.process.patched"
    return worker.main()


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    os._exit(code)
