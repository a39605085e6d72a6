"""Grafana's dashboards: what they show is data (`fleet.py` and beside), of which `grafana.py` makes JSON with Grafana's own SDK."""

from dev.dashboards import energy, fleet, job, operator, worker
from dev.dashboards.board import Board

BOARDS: tuple[Board, ...] = (fleet.BOARD, job.BOARD, worker.BOARD, operator.BOARD, energy.BOARD)
