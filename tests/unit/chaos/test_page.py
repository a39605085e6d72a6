"""What the page for contributors says of a run of faults is how it is played."""

from bench.failures.stage import RATE
from tests.chaos.run import _BESIDE, _ROUND_FAULTS
from tests.pages import ROOT


def test_the_page_has_the_figures_of_a_round() -> None:
    text = (ROOT / "docs" / "contributing.md").read_text().partition("## Run chaos")[2].partition("\n## ")[0]

    assert f"in rounds of {_ROUND_FAULTS} " in text
    assert f"under {RATE:g} requests a second" in text
    assert _BESIDE == 2 and "two batches at a time" in text
