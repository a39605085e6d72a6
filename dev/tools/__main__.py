"""`python3 -m dev.tools [SET...]`: build what is missing; by default what a cluster needs."""

import argparse
import shutil

from dev.console import run_main
from dev.tools import TOOL_SETS, ensure


def main() -> int:
    """Build the named sets and print where each one is."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.tools", description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(TOOL_SETS))
    chosen = parser.parse_args().sets or default_sets()
    unknown = sorted(set(chosen) - set(TOOL_SETS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(TOOL_SETS)}")
    for name in chosen:
        print(f"{name}\t{ensure(name)}")
    return 0


def default_sets() -> list[str]:
    """Return what `up` needs; kubectl only where the machine has none."""
    names = ["etcd", "kubernetes", "coredns"]
    if shutil.which("kubectl") is None:
        names.append("kubectl")
    return names


if __name__ == "__main__":
    run_main(main)
