"""What the documentation says is so: pages made from code are current, examples are valid, links lead somewhere."""

import importlib.util
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import yaml

from inference_operator.accelerator_faults import fault_of, warnings_of
from inference_operator.accelerators import AcceleratorClass, default_classes
from inference_operator.state.parse import parse_job, parse_model
from inference_worker.engines import providers

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("dev/*.md")])


def load_builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILDER = load_builder()


@pytest.mark.parametrize("name", BUILDER.PAGES)
def test_a_reference_page_is_what_the_code_gives(name: str) -> None:
    written = (ROOT / "docs" / "reference" / name).read_text()

    assert written.endswith(BUILDER.PAGES[name]()), "run `make docs`"


def test_the_charts_readme_has_each_value_and_what_its_comment_says() -> None:
    text = BUILDER.chart()

    assert "| `accelerators.gpu.wattsBusy` | `300` |" in text
    assert "| `gateway.port` | `8080` | The port that they listen on, for HTTP and gRPC. |" in text
    values = yaml.safe_load((BUILDER.CHART / "values.yaml").read_text())
    assert all(re.search(rf"^\| `{name}[.`]", text, re.MULTILINE) for name in values)


def objects() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for path in sorted((ROOT / "examples" / "manifests").glob("*.yaml")):
        found += [(path.name, one) for one in yaml.safe_load_all(path.read_text())]
    for page in PAGES:
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
            found += [(page.name, one) for one in yaml.safe_load_all(block)]
    return found


@pytest.mark.parametrize(("where", "one"), objects(), ids=lambda value: value if isinstance(value, str) else "")
def test_an_example_is_valid(where: str, one: dict[str, Any]) -> None:
    assert {"apiVersion", "kind", "metadata"} <= one.keys(), where
    raw = {**one, "metadata": {"namespace": "n", "uid": "u", **one["metadata"]}}
    if one["kind"] == "InferenceJob":
        assert parse_job(raw).invalid is None
    elif one["kind"] == "InferenceModel":
        assert parse_model(raw).invalid is None


def classes_on_pages() -> list[tuple[str, str, dict[str, Any]]]:
    """Page, name and definition of each accelerator class that a page shows, without those that it removes."""
    return [
        (page.name, name, given)
        for page in PAGES
        for block in re.findall(r"^```\n(accelerators:\n.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for name, given in yaml.safe_load(block)["accelerators"].items()
        if given is not None
    ]


@pytest.mark.parametrize(("where", "name", "given"), classes_on_pages(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_class_on_a_page_runs_jobs_when_it_is_copied(where: str, name: str, given: dict[str, Any]) -> None:
    """Copied as it was, such a class got the image for CPUs, no memory of its own, or no place on a tainted node."""
    of_class = msgspec.convert(given, AcceleratorClass)

    assert fault_of({**default_classes(), name: of_class}) is None
    assert warnings_of({name: of_class}) == ()
    assert {"cpu", "memory"} <= set(of_class.requests) and "memory" in of_class.limits
    if of_class.resource_name is not None:
        assert {"key": "nvidia.com/gpu", "operator": "Exists"} in given["tolerations"]


def test_each_plug_in_has_a_recipe_for_an_image_that_ends_as_the_workers_own_user() -> None:
    text = (ROOT / "docs" / "tasks" / "accelerators.md").read_text()
    recipes = re.findall(r"```dockerfile\n(.*?)```", text, re.DOTALL)
    installed = " ".join(recipes)

    assert all(f" {package}==" in installed for package in providers._PACKAGES.values()) and "tensorrt-cu13-libs" in installed
    for recipe in recipes:
        first, *_, last = recipe.splitlines()
        assert first.startswith("FROM registry.example.com/inference-worker") and last == "USER 65532:65532"


def test_every_image_that_a_class_names_is_built_by_a_command_on_a_page() -> None:
    """A recipe had neither a file's name nor a tag, and the classes beside it named images that no command made."""
    text = "\n".join(page.read_text() for page in PAGES)
    shown = text + (ROOT / "examples" / "accelerators-values.yaml").read_text()
    built = set(re.findall(r"docker build [^\n]*-t \$REGISTRY/([\w-]+):", text))

    assert set(re.findall(r"image: registry\.example\.com/([\w-]+):", shown)) <= built
    for recipe, command in re.findall(r"Save as `(\S+)`:\n\n```dockerfile\n.*?```\n\n```sh\n(.*?)```", text, re.DOTALL):
        assert f"- < {recipe}\n" in command
    assert len(re.findall("^Save as `", text, re.MULTILINE)) == text.count("```dockerfile\n")


def test_both_worker_images_find_the_driver_where_gke_mounts_it() -> None:
    """The image with PyTorch is built from the one for CPUs."""
    for name in ("Containerfile", "Containerfile.gpu"):
        _, _, final = (ROOT / "worker-image" / name).read_text().rpartition("\nFROM ")
        (libraries,) = re.findall(r"LD_LIBRARY_PATH=(\S+)", final)
        assert "/usr/local/nvidia/lib64" in libraries.split(":") and "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in final


def test_the_mission_manifest_is_unchanged() -> None:
    (job,) = yaml.safe_load_all((ROOT / "examples" / "manifests" / "60-lane-detection-001.yaml").read_text())

    assert job == {
        "apiVersion": "inference.myorg/v1",
        "kind": "InferenceJob",
        "metadata": {"name": "lane-detection-001"},
        "spec": {
            "model": "lane-detection-v2",
            "accelerator": "gpu",
            "deadline": "2026-04-02T12:00:00Z",
            "batchSize": 4,
        },
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def forwarded() -> list[tuple[str, str]]:
    """Where a command or a note is shown that forwards a port to a Service, and to which."""
    shown = [*PAGES, *(ROOT / "examples").rglob("*"), ROOT / "charts" / "inference-operator" / "templates" / "NOTES.txt"]
    texts = [(path, path.read_text()) for path in shown if path.suffix in {".md", ".yaml", ".sh", ".txt", ".py"}]
    return [(path.name, name) for path, text in texts for name in re.findall(r"port-forward[^\n]*?\b(?:svc|services?)/(\S+)", text)]


def test_no_page_forwards_a_port_to_the_service_of_a_job() -> None:
    """It has no selector, and kubectl takes no other; the chart's own Services have one."""
    assert [(where, name) for where, name in forwarded() if not name.startswith("inference-operator")] == []


def test_the_readmes_command_gives_its_example_a_deadline_that_can_be_met() -> None:
    text = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^(sed .*) jobs\.yaml \|", text, re.MULTILINE)
    (manifest,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    changed = subprocess.run(["bash", "-c", command], input=manifest, capture_output=True, text=True, check=True).stdout

    _, before = yaml.safe_load_all(manifest)
    _, job = yaml.safe_load_all(changed)
    deadline = datetime.fromisoformat(job["spec"].pop("deadline"))
    assert timedelta(minutes=50) < deadline - datetime.now(UTC) < timedelta(minutes=70)
    assert datetime.fromisoformat(before["spec"].pop("deadline")) < datetime.now(UTC) and job == before


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()

    for target in set(re.findall(r"`make ([a-z-]+)", (ROOT / "README.md").read_text())):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
