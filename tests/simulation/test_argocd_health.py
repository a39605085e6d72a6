"""Argo CD's health scripts say what kstatus says, of every state that the simulation comes to and of every set of conditions.

They are run by gopher-lua, which Argo CD runs them with, at Argo CD's version and with the libraries that it gives to scripts
(argoproj/argo-cd, util/lua/lua.go). It is built once, into the cache that the cluster's programs are in.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dev import tools
from inference_operator.api.schema import rfc3339
from tests.kstatus import kstatus
from tests.simulation.states import KINDS, WORLDS, states_of
from tests.simulation.virtual_time import START

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.api import Raw

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "charts" / "inference-operator" / "files" / "argocd" / "inference.myorg"
# argoproj/gitops-engine, pkg/health: a Suspended resource is one that its user has paused, and not worse than a healthy one.
HEALTH = {"Terminating": "Progressing", "InProgress": "Progressing", "Failed": "Degraded", "Current": "Healthy"}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("go") is None, reason="gopher-lua is built with Go")]


@pytest.fixture(scope="module")
def glua() -> Iterator[Path]:
    tools.TOOL_SETS["gopher-lua"] = tools.ToolSet(
        module=str(HERE / "gopher-lua"), programs={"glua": "github.com/yuin/gopher-lua/cmd/glua"}
    )
    try:
        yield tools.ensure("gopher-lua") / "glua"
    finally:
        del tools.TOOL_SETS["gopher-lua"]


def health_of(glua: Path, states: Sequence[tuple[str, Raw]], folder: Path) -> list[tuple[str, str]]:
    """What the scripts return of each state: the status, and the type and length of the message."""
    # Of the standard libraries scripts have base and table only.
    lines = ["local say, load = print, loadstring", "string, math, io, debug, coroutine, channel = nil, nil, nil, nil, nil, nil"]
    lines += [f"local {kind} = load({literal((SCRIPTS / kind / 'health.lua').read_text())})" for kind in KINDS.values()]
    for kind, raw in states:
        # A function each: one that built them all would have more constants than Lua takes.
        lines.append(f"obj = (function() return {literal(raw)} end)()")
        lines.append(f"do local found = {kind}() say(found.status) say(type(found.message) .. #found.message) end")
    program = folder / "states.lua"
    program.write_text("\n".join(lines))
    done = subprocess.run([glua, program], capture_output=True, text=True, check=True, timeout=60)
    said = done.stdout.splitlines()
    return list(zip(said[::2], said[1::2], strict=True))


def literal(value: Any) -> str:
    """A value as Lua source."""
    match value:
        case dict():
            return "{" + ", ".join(f"[{literal(key)}] = {literal(one)}" for key, one in value.items()) + "}"
        case list() | tuple():
            return "{" + ", ".join(map(literal, value)) + "}"
        case str():
            return '"' + "".join(chr(b) if chr(b).isalnum() or b == 32 else f"\\{b:03}" for b in value.encode()) + '"'
        case None:
            return "nil"
        case _:
            return json.dumps(value)


def expected(raw: Raw) -> str:
    """What Argo CD should say, by what kstatus says."""
    verdict = kstatus(raw)
    suspended = any((one["type"], one["status"]) == ("Suspended", "True") for one in raw["status"].get("conditions", ()))
    return "Suspended" if verdict == "Current" and suspended else HEALTH[verdict]


def check(glua: Path, states: Sequence[tuple[str, Raw]], folder: Path) -> None:
    said = health_of(glua, states, folder)

    differ = [
        (kind, expected(raw), found, raw) for (kind, raw), (found, _) in zip(states, said, strict=True) if found != expected(raw)
    ]
    assert differ == []
    assert all(message.startswith("string") and message != "string0" for _, message in said)


# Every state of the simulation.


@pytest.mark.parametrize("name", WORLDS)
def test_argo_cd_and_kstatus_agree_on_every_state(glua: Path, tmp_path: Path, name: str) -> None:
    check(glua, states_of(name), tmp_path)


def test_a_service_that_ended_and_a_roll_out_are_told_as_they_are(glua: Path, tmp_path: Path) -> None:
    """A script without these rules shows the first as Progressing for ever, and the second as Healthy from its start."""
    ended = [a_condition("Accepted", "True"), a_condition("Succeeded", "True")]
    rolls_out = [a_condition("Ready", "True"), a_condition("Reconciling", "True")]
    states = [("InferenceJob", a_state(conditions)) for conditions in (ended, rolls_out)]

    assert [status for status, _ in health_of(glua, states, tmp_path)] == ["Healthy", "Progressing"]


# Every set of conditions.


def a_condition(kind: str, status: str) -> Raw:
    return {"type": kind, "status": status, "reason": "Because", "message": f'{kind} is "{status}"\n'.strip()}


def a_state(conditions: list[Raw], *, generation: int = 2, observed: int = 2, deleted: bool = False) -> Raw:
    meta = {"name": "n", "generation": generation, **({"deletionTimestamp": rfc3339(START)} if deleted else {})}
    return {"metadata": meta, "spec": {}, "status": {"observedGeneration": observed, "conditions": conditions}}


def test_argo_cd_and_kstatus_agree_on_every_set_of_conditions(glua: Path, tmp_path: Path) -> None:
    values = (None, "True", "False", "Unknown")
    states = []
    for kinds in (("Ready", "Stalled", "Reconciling", "Suspended"), ("Suspended", "Reconciling", "Stalled", "Ready")):
        for truths in itertools.product(values, repeat=4):
            conditions = [a_condition(kind, truth) for kind, truth in zip(kinds, truths, strict=True) if truth is not None]
            states += [a_state(conditions), a_state(conditions, observed=1), a_state(conditions, deleted=True)]
    states += [a_state([], observed=0, generation=1)]
    # A model is never suspended.
    models = [raw for raw in states if all(one["type"] != "Suspended" for one in raw["status"]["conditions"])]

    check(glua, [("InferenceJob", raw) for raw in states] + [("InferenceModel", raw) for raw in models], tmp_path)
