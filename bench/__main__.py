"""`python -m bench NAME [--rounds N]`: run one benchmark, write its result, print its bars."""

import argparse
import importlib
import sys
from pathlib import Path

from bench.report import Result, write


def main() -> int:
    """Run it. The exit code says whether it could be measured, not whether the bars hold."""
    names = sorted(path.parent.name for path in Path(__file__).parent.glob("*/run.py"))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", choices=names)
    parser.add_argument("--rounds", type=int, default=0, help="how often; 0 is the benchmark's own number")
    arguments = parser.parse_args()
    result: Result = importlib.import_module(f"bench.{arguments.name}.run").run(arguments.rounds)
    path = write(arguments.name, result)
    for bar in result.bars:
        print(f"{'holds' if bar.holds else 'MISSED':7} {bar.id:28} {bar.value:>12g} {bar.bound:12} {bar.what}")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
