"""`python -m bench NAME [--rounds N]`: run one benchmark, write its result, print its targets."""

import argparse
import importlib
import sys
from pathlib import Path

from bench.report import Result, write


def main() -> int:
    """Run it. The exit code says whether it could be measured, not whether the targets hold."""
    names = sorted(path.parent.name for path in Path(__file__).parent.glob("*/run.py"))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=names)
    parser.add_argument("--rounds", type=int, default=0, help="how often; 0 is the benchmark's own number")
    arguments = parser.parse_args()
    result: Result = importlib.import_module(f"bench.{arguments.name}.run").run(arguments.rounds)
    path = write(arguments.name, result)
    for target in result.targets:
        print(f"{'holds' if target.holds else 'MISSED':7} {target.id:28} {target.value:>12g} {target.bound:12} {target.what}")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
