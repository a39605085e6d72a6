"""Every panel's query on a real Prometheus that scraped a real operator and real workers, and promtool on what they tell."""

from __future__ import annotations

import asyncio
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from dev.dashboards import BOARDS
from tests.component import monitored

if TYPE_CHECKING:
    from dev.dashboards.board import Board, Panel
    from tests.component.monitored import Scraped
    from tests.component.operators import Nursery

# What has no series here: no device, no tenant of a gateway, no cluster that grows, and nothing that goes wrong.
ABSENT = (
    "inference_placeholder_pods",
    "inference_device_",
    "inference_tenant_",
    "inference_operator_suspicions_total",
    "inference_operator_reconcile_errors_total",
)


@pytest.fixture(scope="module")
def scraped(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Scraped:
    return asyncio.run(monitored.scraped(nursery, tmp_path_factory.mktemp("dashboards")))


def _panels(board: Board) -> list[Panel]:
    return [panel for row in board.rows for panel in row.panels]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_each_panel_has_data(board: Board, scraped: Scraped) -> None:
    queries = [(panel.title, query.expr) for panel in _panels(board) for query in panel.queries]
    empty = [(title, expr) for title, expr in queries if not scraped.values(expr)]

    assert [one for one in empty if not any(name in one[1] for name in ABSENT)] == []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_shares_are_shares_and_no_number_is_impossible(board: Board, scraped: Scraped) -> None:
    for panel in _panels(board):
        values = [value for query in panel.queries for value in scraped.values(query.expr)]

        assert panel.unit != "percentunit" or all(0 <= value <= 1 for value in values), panel.title
        assert "slack" in panel.title.lower() or all(value >= 0 for value in values), panel.title


def test_numbers_are_those_of_the_scene(scraped: Scraped) -> None:
    def last(board: str, title: str) -> float:
        (panel,) = (panel for one in BOARDS if one.name == board for panel in _panels(one) if panel.title == title)
        return scraped.lines[panel.queries[0].expr][0].points[-1][1]

    assert last("operator", "Leaders") == last("operator", "Replicas") == 1
    assert last("fleet", "Jobs that wait") == 1
    assert last("fleet", "Deadlines met, last hour") == pytest.approx(0.5, abs=0.01)
    assert last("job", "Workers") == 1


@pytest.mark.parametrize("scaler", monitored.SCALERS)
def test_what_scales_by_prometheus_finds_one_series(scaler: str, scraped: Scraped) -> None:
    (line,) = scraped.lines[monitored.SCALERS[scaler]]

    # One worker suffices; the latency is in milliseconds.
    assert line.points[-1][1] == 1 if scaler == "keda" else 0.1 < max(value for _, value in line.points) < 1000


@pytest.mark.parametrize("whose", ["operator", "worker"])
def test_promtool_finds_nothing_but_the_name_of_the_mission(whose: str, scraped: Scraped) -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=scraped.texts[whose], capture_output=True, text=True, check=False)
    names = re.findall(r"^(\w+) ", done.stdout + done.stderr, re.MULTILINE)

    assert set(names) <= {"inference_latency_ms"}, done.stderr
