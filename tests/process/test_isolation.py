"""A worker under the command of its image: what its environment says runs nothing before the worker itself."""

from __future__ import annotations

import json
import os
import re
import sysconfig
import venv
from typing import TYPE_CHECKING

import pytest

from tests.process import models
from tests.process.harness import REPOSITORY, a_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.process.harness import Place, Worker

PACKAGES = [REPOSITORY / "protocol", REPOSITORY / "worker-image"]
CONTAINERFILES = {name: (REPOSITORY / "worker-image" / name).read_text() for name in ("Containerfile", "Containerfile.gpu")}


def arguments_of(containerfile: str) -> list[str]:
    """The image's entry point without its first word, the interpreter."""
    match = re.search(r"^ENTRYPOINT (\[.*\])$", containerfile, re.MULTILINE)
    assert match is not None
    interpreter, *arguments = json.loads(match[1])
    assert interpreter == "python3"
    return arguments


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that finds the worker as the one of the image does: by a file among its own packages."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "inference.pth").write_text("\n".join(map(str, [*PACKAGES, sysconfig.get_path("purelib")])))
    return folder / "bin" / "python3"


def by_warnings(folder: Path) -> Mapping[str, str]:
    """Python imports the category of a warning filter at its start, and `antigravity` opens a browser."""
    return {"PYTHONWARNINGS": "all:0:antigravity.x:0:0", "BROWSER": f"touch {folder / 'ran'} %s"}


def by_path(folder: Path) -> Mapping[str, str]:
    """`sitecustomize` is imported at the start from wherever PYTHONPATH says: a claim, for example."""
    (folder / "claim").mkdir()
    (folder / "claim" / "sitecustomize.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    return {"PYTHONPATH": os.pathsep.join(map(str, [folder / "claim", *PACKAGES]))}


def by_own_name(folder: Path) -> Mapping[str, str]:
    """A package of the worker's name before the worker's."""
    (folder / "claim" / "inference_worker").mkdir(parents=True)
    (folder / "claim" / "inference_worker" / "__init__.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    (folder / "claim" / "inference_worker" / "__main__.py").touch()
    return {"PYTHONPATH": str(folder / "claim")}


ATTACKS: list[Callable[[Path], Mapping[str, str]]] = [by_warnings, by_path, by_own_name]


def started(place: Place, command: list[str], variables: Mapping[str, str]) -> Worker:
    config = a_config(place.put("net.onnx", models.two_outputs()))
    return place.start(config, command=command, variables=variables)


@pytest.mark.parametrize("attack", ATTACKS)
def test_variables_that_python_obeys_run_nothing_in_a_worker(
    place: Place, interpreter: Path, attack: Callable[[Path], Mapping[str, str]]
) -> None:
    variables = attack(place.root)

    started(place, [str(interpreter), *arguments_of(CONTAINERFILES["Containerfile"])], variables).wait_ready()

    assert not (place.root / "ran").exists()


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_attacks_work_on_an_interpreter_that_is_not_isolated(
    place: Place, interpreter: Path, attack: Callable[[Path], Mapping[str, str]]
) -> None:
    """Else the test above would pass for nothing."""
    started(place, [str(interpreter), "-m", "inference_worker"], attack(place.root)).ready_or_ended()

    assert (place.root / "ran").exists()


@pytest.mark.parametrize("name", CONTAINERFILES)
def test_each_image_isolates_its_interpreter_and_needs_no_path_from_outside(name: str) -> None:
    final = CONTAINERFILES[name].rpartition("\nFROM ")[2]

    assert arguments_of(final)[:1] == ["-I"]
    assert "PYTHON" not in final and "COPY --from=code /paths /" in final
