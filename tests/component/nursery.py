"""Forks operators from one process that has imported them already: an operator a test would be too slow otherwise.

Speaks JSON lines: {"start": {environment, log, constants}} is answered by {"pid"}, {"poll": pid} by {"code"} (None while it runs).
When its input ends it kills what is left.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any

from inference_operator.app import main


def serve() -> None:
    children: dict[int, int | None] = {}
    gc.freeze()
    try:
        for line in sys.stdin:
            order = json.loads(line)
            if "start" in order:
                pid = _fork(order["start"])
                children[pid] = None
                answer: dict[str, Any] = {"pid": pid}
            else:
                pid = order["poll"]
                if children[pid] is None:
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    children[pid] = os.waitstatus_to_exitcode(status) if ended else None
                answer = {"code": children[pid]}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        for pid, code in children.items():
            if code is None:
                os.kill(pid, signal.SIGKILL)


def _fork(start: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setpgid(0, 0)
        os.environ.update(start["environment"])
        log = os.open(start["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        for name, value in start["constants"].items():
            module, _, path = name.partition(":")
            *owners, attribute = path.split(".")
            owner = importlib.import_module(module)
            for one in owners:
                owner = getattr(owner, one)
            # Values that are frozen among them.
            object.__setattr__(owner, attribute, value)
        code = main()
    except BaseException:  # noqa: BLE001 -- the child must never return into the nursery's loop
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
