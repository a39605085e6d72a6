"""`python -m tests.fuzz.wire --target http1 --requests 1000000 --seed 1`: print what a run came to, as JSON."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.wire.targets import TARGETS


def main() -> None:
    """Run one target, or all in turn."""
    parser = argparse.ArgumentParser(prog="tests.fuzz.wire")
    parser.add_argument("--target", choices=[*TARGETS, "all"], default="all")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--callers", type=int, default=4)
    given = parser.parse_args()
    for name in TARGETS if given.target == "all" else (given.target,):
        with tempfile.TemporaryDirectory() as folder:
            found = TARGETS[name](folder=Path(folder), requests=given.requests, seed=given.seed, callers=given.callers)
        sys.stdout.write(f"{found}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
