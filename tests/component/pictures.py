"""`python -m tests.component.pictures`: draw the dashboards' panels as Prometheus answers them, for docs/tasks/monitor.md.

Grafana itself is no part of this project. The pictures show each panel's real queries, over some minutes of the tests' scene.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt

from dev.dashboards import BOARDS
from dev.dashboards.board import Kind
from tests.component import monitored
from tests.component.operators import REPOSITORY, Nursery

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dev.dashboards.board import Board, Panel
    from tests.component.monitored import Scraped
    from tests.component.prometheus import Line

FOLDER = REPOSITORY / "docs" / "pictures"
BATCHES = 60
_COLUMNS = 3
_MOST_LEGENDS = 8
_DOTS = 4
_UNITS = {
    "s": "s",
    "percentunit": "share",
    "bytes": "bytes",
    "reqps": "requests/s",
    "ops": "1/s",
    "joule": "J",
    "watt": "W",
    "short": "",
}


def main() -> None:
    """Play the scene once and write a picture for each board."""
    nursery = Nursery()
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(monitored.scraped(nursery, Path(folder), more=BATCHES))
    finally:
        nursery.end()
    for board in BOARDS:
        draw(board, found, FOLDER / f"dashboard-{board.name}.png")


def draw(board: Board, found: Scraped, target: Path) -> None:
    """Write one picture: a box for each panel that has data."""
    panels = [panel for row in board.rows for panel in row.panels if any(found.lines[query.expr] for query in panel.queries)]
    rows = -(-len(panels) // _COLUMNS)
    figure, boxes = plt.subplots(rows, _COLUMNS, figsize=(15, 2.6 * rows), squeeze=False, layout="constrained")
    for box in boxes.flat[len(panels) :]:
        box.set_axis_off()
    for panel, box in zip(panels, boxes.flat, strict=False):
        _draw(panel, found, box)
    figure.suptitle(board.title)
    figure.savefig(target, dpi=70)
    plt.close(figure)


def _draw(panel: Panel, found: Scraped, box: Axes) -> None:
    lines = [(_legend(query.legend, line), line) for query in panel.queries for line in found.lines[query.expr]]
    box.set_title(panel.title, fontsize=10, loc="left")
    if panel.kind is Kind.NUMBER:
        box.set_axis_off()
        told = [f"{_number(line.points[-1][1], panel.unit)} {legend}".strip() for legend, line in lines]
        box.text(0.5, 0.5, "\n".join(told), ha="center", va="center", fontsize=20)
        return
    if panel.kind is Kind.STACK:
        _stack(lines, box)
    else:
        for legend, line in lines:
            box.plot(*zip(*line.points, strict=True), linewidth=1, label=legend, marker="." if len(line.points) < _DOTS else "")
    box.set_ylim(bottom=None if any(value < 0 for _, line in lines for _, value in line.points) else 0)
    box.set_ylabel(_UNITS[panel.unit], fontsize=8)
    box.tick_params(labelsize=7)
    if 1 < len(lines) <= _MOST_LEGENDS or any(legend for legend, _ in lines[:1]):
        box.legend(*(part[:_MOST_LEGENDS] for part in box.get_legend_handles_labels()), fontsize=6, loc="upper left")


def _number(value: float, unit: str) -> str:
    return f"{value:.1%}" if unit == "percentunit" else f"{value:.4g} {_UNITS[unit]}".strip()


def _stack(lines: list[tuple[str, Line]], box: Axes) -> None:
    times = sorted({at for _, line in lines for at, _ in line.points})
    values = [[dict(line.points).get(at, 0.0) for at in times] for _, line in lines]
    box.stackplot(times, values, labels=[legend for legend, _ in lines], alpha=0.7)


def _legend(pattern: str, line: Line) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda match: line.labels.get(match[1], ""), pattern)


if __name__ == "__main__":
    main()
