"""The chart's dashboards: they are what the generator writes, and name series that there are."""

from __future__ import annotations

import json
import re

import pytest

from dev.dashboards import BOARDS
from dev.dashboards.__main__ import FOLDER
from dev.dashboards.board import Board
from dev.dashboards.grafana import dashboard_json

_PAGE = (FOLDER.parents[3] / "docs" / "reference" / "metrics.md").read_text()
_KINDS = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", _PAGE, re.MULTILINE))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_dashboard_is_what_the_generator_writes(board: Board) -> None:
    assert (FOLDER / f"{board.name}.json").read_text() == dashboard_json(board), "run `make dashboards`"


def test_no_other_file_is_shipped() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {board.name for board in BOARDS}


def test_every_series_is_one_of_the_reference() -> None:
    exprs = [query.expr for board in BOARDS for row in board.rows for panel in row.panels for query in panel.queries]
    named = {name for expr in exprs for name in re.findall(r"\b(?:inference|process)_\w+", expr)} - {"inference_job"}
    known = set(_KINDS) | {
        f"{name}{end}" for name, kind in _KINDS.items() if kind == "histogram" for end in ("_bucket", "_count", "_sum")
    }

    assert named - known == set()
    # A rate of a gauge is no rate, and a counter by itself says when the process started.
    for expr in exprs:
        for name in re.findall(r"(?:rate|increase)\((\w+)", expr):
            assert name.endswith(("_total", "_bucket", "_count")), expr


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_the_page_names_panels_that_there_are(board: Board) -> None:
    page = (FOLDER.parents[3] / "docs" / "tasks" / "monitor.md").read_text()
    section = page.split(f"### {board.title}\n")[1].split("\n#")[0]
    titles = {panel.title for row in board.rows for panel in row.panels} | {row.title for row in board.rows}

    assert set(re.findall(r"(?<!\*)\*([A-Z][^*|]+)\*", section)) <= titles


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_panels_say_what_they_show_in_a_unit_and_with_ids_of_their_own(board: Board) -> None:
    made = json.loads(dashboard_json(board))
    ids = [panel["id"] for panel in made["panels"]]

    assert len(set(ids)) == len(ids)
    for panel in (panel for panel in made["panels"] if panel["type"] != "row"):
        assert panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"] and panel["targets"]
        seconds = [one["expr"] for one in panel["targets"] if re.search(r"(?<!cpu)_seconds(_bucket)?\b(?!_count)", one["expr"])]
        assert not seconds or panel["fieldConfig"]["defaults"]["unit"] == "s", panel["title"]
