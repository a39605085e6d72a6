"""`python -m dev.dashboards`: write the chart's dashboards."""

from pathlib import Path

from dev.dashboards import BOARDS
from dev.dashboards.grafana import dashboard_json

FOLDER = Path(__file__).resolve().parents[2] / "charts" / "inference-operator" / "files" / "dashboards"


def main() -> None:
    """Write a file for each board."""
    FOLDER.mkdir(exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(dashboard_json(board))


if __name__ == "__main__":
    main()
