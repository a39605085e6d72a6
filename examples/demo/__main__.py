"""`python -m examples.demo`: from a cluster to the finished examples, and a table of what ran."""

import sys
import textwrap
import time

from dev.console import heartbeat
from examples.demo import steps
from examples.demo.cluster import ROOT, build_images, install, local, say
from examples.models.index import build_all
from examples.models.magika_features import default_trees

_RESULT_WIDTH = 60


def main() -> int:
    """Run every step; print the table and what kubectl shows."""
    begun = time.monotonic()
    kube = local()
    built = ROOT / "build" / "examples"
    with heartbeat("the example models"):
        build_all(built, default_trees())
    say("the operator is installed by Helm")
    install(kube, build_images(*(("--no-import",) if kube.on_kind else ())))
    kube.delete("inferencejobs", "--all")
    folder = steps.prepare(kube, built)
    rows = []
    for step in steps.STEPS:
        say(f"{step.__name__}: {(step.__doc__ or '').splitlines()[0]}")
        rows.append(step(kube, folder))
    print_table(rows)
    print(kube.run("get", "inferencejobs"))
    say(f"done in {time.monotonic() - begun:.0f} s; the cluster stays up ({kube.ended_by} ends it)")
    print(f"export KUBECONFIG={kube.kubeconfig}")
    return 0


def print_table(rows: list[steps.Row]) -> None:
    """Columns as wide as they need to be; the last one wrapped."""
    cells = [steps.COLUMNS, *(row.cells for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(steps.COLUMNS) - 1)]
    for row in cells:
        head = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        first, *more = textwrap.wrap(row[-1], _RESULT_WIDTH) or [""]
        print(f"{head}  {first}".rstrip())
        for line in more:
            print(" " * (len(head) + 2) + line)
    print()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        say(f"failed: {error}")
        sys.exit(1)
