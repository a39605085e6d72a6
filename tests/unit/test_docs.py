"""What the documentation says is so: pages made from code are current, examples are valid, links lead somewhere."""

import importlib.util
import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from dev.tools import KUBERNETES_VERSION
from inference_operator.accelerator_faults import fault_of, warnings_of
from inference_operator.accelerators import AcceleratorClass, default_classes
from inference_operator.api import names
from inference_operator.autoscaling.metrics import METRICS
from inference_operator.state.parse import parse_job, parse_model
from inference_worker.engines import providers
from tests.pages import CHART, PAGES, ROOT, anchors, blocks, commands, links, manifests, prose


def load_builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILDER = load_builder()
README = ROOT / "README.md"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
TARGETS = frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


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


@pytest.mark.parametrize(("where", "one"), manifests(), ids=lambda value: value if isinstance(value, str) else "")
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


def test_the_class_of_the_page_of_gpus_is_the_charts_but_for_its_image() -> None:
    """So it says, and that the rest can be left out."""
    (shown,) = [given for where, name, given in classes_on_pages() if where == "nvidia-gpus.md" and name == "gpu"]

    assert shown.pop("image") and shown == {key: value for key, value in VALUES["accelerators"]["gpu"].items() if key != "image"}


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


PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@PAGE
def test_links_lead_to_a_file_and_a_heading_of_it(page: Path) -> None:
    for path, anchor in links(page):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"
        # The site has no folders, and its face is docs/index.md.
        assert page == README or (target.is_file() and target.resolve() != README), f"{path} isn't in the site"


def in_navigation(entry: Any) -> list[str]:
    """The pages of an entry of mkdocs.yml: a page, a page with a title, or a section."""
    if isinstance(entry, str):
        return [entry]
    return [page for one in (entry.values() if isinstance(entry, dict) else entry) for page in in_navigation(one)]


def test_every_page_is_in_the_sites_navigation_once() -> None:
    named = in_navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    # README.md is the repository's face, and docs/index.md the site's.
    pages += [f"repository/{path.relative_to(ROOT).as_posix()}" for path in PAGES if not path.is_relative_to(ROOT / "docs")]
    pages.remove("repository/README.md")

    assert sorted(named) == sorted(pages)


def swallowed(text: str) -> Iterator[str]:
    """The items of lists that go on a paragraph, for Python-Markdown."""
    paragraph = False
    for above, line in pairwise(["", *text.splitlines()]):
        item = re.match(r"(?:[*-]|\d+\.) ", line.lstrip())
        if not above.strip():
            paragraph = not item
        elif paragraph and item:
            yield line


@PAGE
def test_a_page_looks_alike_on_github_and_in_the_site(page: Path) -> None:
    """Python-Markdown takes what is indented by less than four spaces out of its list, and sees no list right after a paragraph."""
    assert re.findall(r"^ {1,3}```.*", page.read_text(), re.MULTILINE) == [], "indent blocks in lists by four spaces"
    assert re.findall(r"^ {1,3}(?:[*|-]|\d+\.) .*", prose(page), re.MULTILINE) == [], (
        "indent lists and tables in lists by four spaces"
    )
    assert list(swallowed(prose(page))) == [], "leave a line blank before a list"
    for table in re.findall(r"(?:^|\n\n)(\|[^\n]*\n[^\n]*)", prose(page)):
        assert re.search(r"\n\|(?: ?:?-+:? ?\|)+$", table), f"no row of dashes below {table[:60]}"


def missing(names: set[str], known: Any) -> set[str]:
    return {name for name in names if name not in known}


@PAGE
def test_what_commands_name_exists(page: Path) -> None:
    lines = list(commands(page))
    text = "\n".join(lines)

    called = re.findall(r"^make (?:-\w+ )*([a-z][a-z-]*)", text, re.MULTILINE) + re.findall(r"`make ([a-z][a-z-]*)", prose(page))
    assert missing(set(called), TARGETS) == set()
    for module in re.findall(r"\bpython3? -m ((?:dev|examples|tests|bench|inference_\w+)[\w.]*)", text + prose(page)):
        assert importlib.util.find_spec(module) is not None, module
    written = set(re.findall(r"> (\S+)", text))
    for path in {*FILE.findall(text), *re.findall(rf"`({FILE.pattern})`", prose(page))} - written:
        assert (ROOT / path).exists(), path
    for line in lines:
        for value in re.findall(r"--set(?:-string|-json)?[ =]'?([\w.,/-]+)=", line) if "helm " in line else ():
            assert is_value(value), value


def test_pages_name_commands_that_the_plug_in_has() -> None:
    known = re.findall(r"^## `kubectl inference ([a-z-]+)`", (ROOT / "docs" / "reference" / "cli.md").read_text(), re.MULTILINE)
    named = {name for page in PAGES for name in re.findall(r"(?<!Use )kubectl inference ([a-z-]+)", page.read_text())}

    assert known
    assert missing(named, known) == set()


def test_each_metric_that_a_page_names_is_told() -> None:
    told = set(re.findall(r"`(inference_\w+)", (ROOT / "docs" / "reference" / "metrics.md").read_text()))
    # By another API; and what is named alike: the label of jobs, and packages.
    told |= METRICS.keys() | {"inference_job"} | {path.name for path in ROOT.glob("*/inference_*")}
    # Decisions and the changelog speak of their time.
    pages = [page for page in PAGES if page.parent.name != "adr" and page.name != "CHANGELOG.md"]
    named = {name for page in pages for name in re.findall(r"(?<![\w/.-])inference_[a-z0-9_]*[a-z](?![\w/.(-])", page.read_text())}

    assert len(named) > 30
    assert missing(named, told) == set()


# Paths from the root, without placeholders, which are in capitals.
FILE = re.compile(
    r"(?<![\w/.$:-])(?:bench|charts|crds|dev|docs|examples|operator|protocol|tests|worker-image)/[a-z0-9_./-]+\.(?:lua|md|py|txt|ya?ml)\b"
)


def is_value(path: str) -> bool:
    """Whether the chart has this value; below an empty one all names are free."""
    at: Any = VALUES
    for name in path.split("."):
        if at in ({}, None):
            return True
        if not isinstance(at, dict) or name not in at:
            return False
        at = at[name]
    return True


def values_on_pages() -> list[tuple[str, dict[str, Any]]]:
    """Blocks that are values of the chart: all their first keys are."""
    return [
        (block.where, yaml.safe_load(block.text))
        for page in PAGES
        for block in blocks(page)
        if block.language in {"", "yaml"} and re.match(rf"(#.*\n)*({'|'.join(VALUES)}):", block.text)
    ]


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Values over defaults as Helm lays them: key by key, and null takes a key away."""
    both = {
        key: merged(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
        for key, value in above.items()
    }
    return {key: value for key, value in {**below, **both}.items() if value is not None or key not in above}


@pytest.mark.parametrize(("where", "values"), values_on_pages(), ids=lambda value: value if isinstance(value, str) else "")
def test_values_on_a_page_meet_the_charts_schema(where: str, values: dict[str, Any]) -> None:
    assert missing(set(values), VALUES) == set(), where
    jsonschema.validate(merged(VALUES, values), SCHEMA)


def fields(schema: dict[str, Any], above: str) -> set[str]:
    """The paths of a schema's fields, as a JSONPath names them: without the indices of lists."""
    found = {above}
    for name, child in (schema.get("items") or schema).get("properties", {}).items():
        found |= fields(child, f"{above}.{name}")
    return found


def test_the_fields_that_commands_name_are_in_the_api() -> None:
    known = {".metadata", ".items"}
    for path in (ROOT / "crds").glob("*.yaml"):
        schema = yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        known |= fields(schema, "")
    lines = [line for page in PAGES for line in commands(page) if re.search(r"\b(ij|im|inferencejobs?|inferencemodels?)\b", line)]
    # What a filter asks of an item, and all else without brackets.
    texts = [
        text.removeprefix("@") for line in lines for text in (*re.findall(r"@[\w.]+", line), re.sub(r"\[[^]]*\]|\.items", "", line))
    ]
    named = {name for text in texts for name in re.findall(r"(?<!\w)\.(?:spec|status)(?:\.\w+)+", text)}

    assert len(named) > 5
    assert missing(named, known) == set()


def test_the_page_of_what_is_supported_names_the_versions_that_tests_build() -> None:
    text = (ROOT / "docs" / "reference" / "support.md").read_text()
    built = (
        ("keda", "kedacore/keda/v2 v"),
        ("prometheus-adapter", "sigs.k8s.io/prometheus-adapter v"),
        ("envoy-gateway", "envoyproxy/gateway v"),
        ("gateway-api", "sigs.k8s.io/gateway-api v"),
        ("argocd", "argoproj/argo-cd/v3 v"),
        ("helm-controller", "fluxcd/helm-controller v"),
        ("kstatus", "sigs.k8s.io/cli-utils v"),
    )

    assert f" {KUBERNETES_VERSION.removeprefix('v')}:" in text
    for tool, module in built:
        (version,) = re.findall(rf"{re.escape(module)}(\S+)", (ROOT / "dev" / "tools" / tool / "go.mod").read_text())
        assert f" {version}" in text, f"{tool} {version}"


def forwarded() -> list[tuple[str, str]]:
    """Where a command or a note is shown that forwards a port to a Service, and to which."""
    shown = [*PAGES, *(ROOT / "examples").rglob("*"), ROOT / "charts" / "inference-operator" / "templates" / "NOTES.txt"]
    texts = [(path, path.read_text()) for path in shown if path.suffix in {".md", ".yaml", ".sh", ".txt", ".py"}]
    return [(path.name, name) for path, text in texts for name in re.findall(r"port-forward[^\n]*?\b(?:svc|services?)/(\S+)", text)]


def test_no_page_forwards_a_port_to_the_service_of_a_job() -> None:
    """It has no selector, and kubectl takes no other; the chart's own Services have one."""
    assert [(where, name) for where, name in forwarded() if not name.startswith("inference-operator")] == []


@PAGE
def test_no_page_reads_the_operators_log_by_its_deployment(page: Path) -> None:
    """kubectl takes one pod of two then, and the standby says nothing of jobs."""
    assert re.findall(r"kubectl logs [^\n`]*\bdeploy(?:ments?)?/[^\n`]*", page.read_text()) == []


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


def test_the_page_of_labels_has_all_that_the_operator_writes() -> None:
    page = (ROOT / "docs" / "reference" / "labels.md").read_text()
    keys = {value for name, value in vars(names).items() if name.startswith(("LABEL_", "ANNOTATION_"))}
    source = "\n".join(path.read_text() for path in (ROOT / "operator").rglob("*.py") if path.name != "names.py")

    assert set(re.findall(r"^\| `([^`]+/[^`]+)` \|", page, re.MULTILINE)) == keys
    # No module has a key of its own beside that list; the finalizer is never written, and the other names who reports events.
    assert set(re.findall(r"DOMAIN\}/([a-z-]+)", source)) == {"unused", "operator"}


CONVENTIONS = ROOT / "docs" / "reference" / "conventions.md"
# Why a row of that page may name no test.
EXCUSES = ("Not done: ", "No test: ")


def rows(page: Path) -> list[list[str]]:
    """The cells of each row of the page's tables, without their heads."""
    lines = re.findall(r"^\| (.*) \|$", page.read_text(), re.MULTILINE)
    return [cells for line in lines if (cells := line.split(" | "))[0] != "Users expect"]


def named_tests(text: str) -> list[tuple[str, str]]:
    """File, below tests, and name of each test that a text names."""
    return [
        (file, test)
        for file, tests in re.findall(r"([\w/]+\.py): ((?:`test_\w+`(?:, )?)+)", text)
        for test in re.findall(r"`(test_\w+)`", tests)
    ]


@pytest.mark.parametrize(("file", "test"), sorted(set(named_tests(CONVENTIONS.read_text()))))
def test_a_test_that_the_conventions_name_is_there(file: str, test: str) -> None:
    assert re.search(rf"^(async )?def {test}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)


def test_each_test_that_a_page_names_is_somewhere() -> None:
    """Pages of reports name files in shorter ways, and each has a test of its own for them, or none."""
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^ *(?:async )?def (test_\w+)\(", written, re.MULTILINE))

    assert {page.name: missing for page in PAGES if (missing := set(re.findall(r"`(test_\w+)`", page.read_text())) - there)} == {}


def test_each_row_of_the_conventions_names_a_test_or_says_why_there_is_none() -> None:
    found = rows(CONVENTIONS)

    assert found and [row for row in found if len(row) != 3] == []
    assert [row for row in found if not named_tests(row[2]) and not row[2].startswith(EXCUSES)] == []
    # No name of a test is left out for the way that it is written.
    assert len(named_tests(CONVENTIONS.read_text())) == len(re.findall("`test_", CONVENTIONS.read_text()))


def test_no_page_upgrades_with_the_defaults_of_a_former_chart() -> None:
    """`--reuse-values` leaves out what a new chart has by default, and templates fail on what is missing."""
    told = {
        page.name
        for page in PAGES
        for line in page.read_text().splitlines()
        if "helm upgrade" in line and " --reuse-values" in line
    }

    assert told == set()
