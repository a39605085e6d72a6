"""The worker with some of its constants replaced: `python -m tests.worker.patched`, in a process of its own.

PATCHES is a JSON object of "module:attribute" to a value; waits that are seconds in a cluster need not be seconds here.
"""

from __future__ import annotations

import importlib
import json
import logging
import os

PATCHES_VARIABLE = "PATCHES"


def main() -> int:
    from inference_worker import __main__ as worker

    for target, value in json.loads(os.environ[PATCHES_VARIABLE]).items():
        module, attribute = target.split(":")
        owner = importlib.import_module(module)
        if not hasattr(owner, attribute):
            raise AttributeError(f"{target} is gone: bring the tests up to date")
        setattr(owner, attribute, value)
    return worker.main()


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    os._exit(code)
