"""One version: it stands in pyproject.toml, and everything else follows it."""

import shutil
from pathlib import Path

import pytest
import yaml

import inference_operator
import inference_worker
from dev.console import DevError
from dev.lint.version import PLACES, ROOT, SOURCE, VERSION, differences, source_version, write
from inference_worker.serve.documents import server

README = "docker build -t REGISTRY/inference-operator:0.1.0 .\ndocker build -t REGISTRY/inference-worker:0.1.0 .\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The places that have the version, all of them at 0.1.0."""
    for path in {path for path, _ in PLACES}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, tmp_path / path)
    (tmp_path / "README.md").write_text(README)
    write(tmp_path, "0.1.0")
    return tmp_path


def test_every_place_names_the_version_of_pyproject() -> None:
    assert differences(ROOT) == [], "run `make version VERSION=...`"


def test_the_version_is_a_semantic_one() -> None:
    assert VERSION.fullmatch(source_version(ROOT))


def test_the_packages_tell_the_version_that_they_are_released_with() -> None:
    assert inference_operator.__version__ == inference_worker.__version__ == source_version(ROOT)
    assert server()["version"] == source_version(ROOT)


def test_the_charts_images_have_the_tag_of_its_app_version() -> None:
    values = yaml.safe_load((ROOT / "charts" / "inference-operator" / "values.yaml").read_text())

    # An empty tag is the chart's appVersion, which is checked above.
    assert [image["tag"] for image in (values["image"], values["worker"]["image"])] == ["", ""]


@pytest.mark.parametrize("version", ["0.2.0", "0.10.0-rc.1", "1.0.0"])
def test_a_new_version_is_written_everywhere(checkout: Path, version: str) -> None:
    changed = write(checkout, version)

    assert sorted(changed) == sorted({*(path for path, _ in PLACES), "README.md"})
    assert source_version(checkout) == version
    assert differences(checkout) == []
    assert (checkout / "README.md").read_text() == README.replace("0.1.0", version)
    chart = yaml.safe_load((checkout / "charts" / "inference-operator" / "Chart.yaml").read_text())
    assert [chart["version"], chart["appVersion"]] == [version, version]


def test_nothing_is_changed_by_the_version_that_is_there(checkout: Path) -> None:
    assert write(checkout, "0.1.0") == []


@pytest.mark.parametrize("path", sorted({*(path for path, _ in PLACES if path != SOURCE), "README.md"}))
def test_a_place_that_lags_behind_is_named(checkout: Path, path: str) -> None:
    text = (checkout / path).read_text()
    (checkout / path).write_text(text.replace("0.1.0", "0.0.9"))

    assert all(line.startswith(f"{path} says 0.0.9") for line in differences(checkout))
    assert differences(checkout)


@pytest.mark.parametrize("version", ["v0.2.0", "0.2", "0.2.0.1", "01.2.0", "0.2.0-beta", "latest", ""])
def test_what_is_no_version_is_refused_and_changes_nothing(checkout: Path, version: str) -> None:
    with pytest.raises(DevError, match="is no version"):
        write(checkout, version)

    assert differences(checkout) == []


def test_a_place_that_is_gone_is_an_error_and_changes_nothing(checkout: Path) -> None:
    chart = checkout / "charts" / "inference-operator" / "Chart.yaml"
    chart.write_text(chart.read_text().replace("appVersion", "applicationVersion"))

    with pytest.raises(DevError, match=r"Chart\.yaml has 0 lines"):
        write(checkout, "0.2.0")

    assert source_version(checkout) == "0.1.0"
