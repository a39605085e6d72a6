"""The real library of kstatus on our objects: in every state that the simulation comes to, and for each phase of a job.

It also holds tests/kstatus.py to it, by which all other tests go.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from dev.tools import ensure
from inference_operator.api.job_status import Phase
from tests.kstatus import kstatus
from tests.pages import ROOT
from tests.simulation.states import WORLDS, states_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.api import Raw

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("go") is None, reason="kstatus is built with Go")]
PAGE = ROOT / "docs" / "tasks" / "gitops.md"


def told_by_kstatus(states: Sequence[tuple[str, Raw]]) -> list[str]:
    """What the library says of each object."""
    lines = [json.dumps({"apiVersion": "inference.myorg/v1", "kind": kind, **raw}) for kind, raw in states]
    program = ensure("kstatus") / "kstatus"
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True, timeout=60)
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", WORLDS)
def test_our_own_kstatus_says_what_the_library_says(name: str) -> None:
    states = states_of(name)

    told = told_by_kstatus(states)

    assert [(kind, kstatus(raw), raw) for (kind, raw), said in zip(states, told, strict=True) if kstatus(raw) != said] == []


def test_the_pages_table_has_what_the_library_says_in_each_phase() -> None:
    """Of objects whose newest spec the operator has acted on; before that it is InProgress in any phase."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name in WORLDS:
        states = [
            (kind, raw)
            for kind, raw in states_of(name)
            if kind == "InferenceJob"
            and "deletionTimestamp" not in raw["metadata"]
            and raw["status"].get("observedGeneration") == raw["metadata"]["generation"]
        ]
        for (_, raw), said in zip(states, told_by_kstatus(states), strict=True):
            found[raw["status"]["phase"]].add(said)

    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    on_page = {phase: set(said.split(" or ")) for phase, said in rows if phase in set(Phase)}
    assert on_page == found
