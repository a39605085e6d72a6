"""Boards as Grafana's JSON, made with the Grafana Foundation SDK."""

import json
from itertools import count
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models

from dev.dashboards.board import Board, Kind, Panel, Query, Variable

_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT = 8
_SPAN = {Kind.NUMBER: 6, Kind.LINES: 12, Kind.STACK: 12}


def dashboard_json(board: Board) -> str:
    """Return what Grafana imports; the same board gives the same text."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(f"inference-{board.name}")
        .description(board.about)
        .tags(["inference"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for variable in board.variables:
        made = made.with_variable(_variable(variable))
    numbers = count(1)
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            made = made.with_panel(_panel(panel).id(next(numbers)))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variable(variable: Variable) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(variable.name)
        .query(f"label_values({variable.metric}, {variable.label})")
        .datasource(_SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


def _panel(panel: Panel) -> stat.Panel | timeseries.Panel:
    return _number(panel) if panel.kind is Kind.NUMBER else _graph(panel)


def _number(panel: Panel) -> stat.Panel:
    made = stat.Panel().title(panel.title).description(panel.about).datasource(_SOURCE).unit(panel.unit)
    made = made.height(_HEIGHT // 2).span(_SPAN[panel.kind]).graph_mode(shapes.BigValueGraphMode.AREA)
    for reference, query in zip(ascii_uppercase, panel.queries, strict=False):
        made = made.with_target(_target(query, reference))
    return made


def _graph(panel: Panel) -> timeseries.Panel:
    made = timeseries.Panel().title(panel.title).description(panel.about).datasource(_SOURCE).unit(panel.unit)
    made = made.height(_HEIGHT).span(_SPAN[panel.kind]).line_width(1).axis_soft_min(0)
    if panel.kind is Kind.STACK:
        made = made.fill_opacity(30).stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL))
    made = made.legend(common.VizLegendOptions().show_legend(True).placement(shapes.LegendPlacement.BOTTOM))
    made = made.tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING))
    for reference, query in zip(ascii_uppercase, panel.queries, strict=False):
        made = made.with_target(_target(query, reference))
    return made


def _target(query: Query, reference: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.legend or "__auto").ref_id(reference)
