"""``python -m examples.models OUTDIR``: build the example models and their data there."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from examples.models.index import INDEX, build_all
from examples.models.magika_features import default_trees


def main(arguments: list[str] | None = None) -> int:
    """Build into the folder given and print what is there."""
    parser = argparse.ArgumentParser(prog="python -m examples.models", description=__doc__)
    parser.add_argument("outdir", type=Path, help="folder for models, data and index.json")
    parser.add_argument(
        "--tree",
        type=Path,
        action="append",
        help="tree of files for the magika data, may be repeated (default: the standard library and /usr/share/doc)",
    )
    options = parser.parse_args(arguments)
    trees = options.tree or default_trees()
    for tree in trees:
        if not tree.is_dir():
            parser.error(f"{tree} is no folder")
    built = build_all(options.outdir, trees)
    index = json.loads((options.outdir / INDEX).read_text(encoding="utf-8"))
    sys.stdout.write("built\n" if built else "up to date\n")
    for name, model in index["models"].items():
        measured = ", ".join(f"{key} {value}" for key, value in model["measured"].items())
        sys.stdout.write(f"  {name:8}{model['bytes']:9} bytes  {measured}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
