"""What Chart.yaml tells Artifact Hub is so, and the values that pages show are taken by the chart."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from dev.values_schema import SCHEMA_FILE
from inference_operator.api.crd import inference_job_crd, inference_model_crd
from inference_operator.install_check import MODEL
from inference_operator.state.parse import parse_job, parse_model

ROOT = Path(__file__).resolve().parents[2]
CHART = yaml.safe_load((SCHEMA_FILE.parent / "Chart.yaml").read_text())
VALUES = yaml.safe_load((SCHEMA_FILE.parent / "values.yaml").read_text())
NOTES = (SCHEMA_FILE.parent / "templates" / "NOTES.txt").read_text()


def shown() -> Iterator[tuple[str, dict[str, Any]]]:
    """The values that pages show as they are written into a file: objects whose names are all values."""
    for page in sorted(ROOT.glob("docs/tasks/*.md")):
        for block in re.findall(r"^ *```\n(.*?)```", page.read_text(), re.DOTALL | re.MULTILINE):
            try:
                values = yaml.safe_load(block)
            except yaml.YAMLError:
                continue
            if isinstance(values, dict) and set(values) <= set(VALUES):
                yield page.name, values


def without_nulls(values: dict[str, Any]) -> dict[str, Any]:
    """The values as Helm has them validated: it drops what is null."""
    parts = {name: without_nulls(value) if isinstance(value, dict) else value for name, value in values.items()}
    return {name: value for name, value in parts.items() if value is not None}


SHOWN = list(shown())


def annotation(name: str) -> Any:
    return yaml.safe_load(CHART["annotations"][f"artifacthub.io/{name}"])


def test_the_crds_are_those_of_the_api() -> None:
    told = {(one["kind"], one["version"], one["name"]) for one in annotation("crds")}
    made = (inference_job_crd(), inference_model_crd())

    assert told == {(c["spec"]["names"]["kind"], c["spec"]["versions"][0]["name"], c["metadata"]["name"]) for c in made}


def test_the_examples_are_ones_that_the_operator_takes() -> None:
    job, model = annotation("crdsExamples")
    where = {"namespace": "default", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    parsed = parse_job({**job, "metadata": {**job["metadata"], **where}})

    assert parsed.spec is not None and parsed.spec.model == MODEL
    assert parse_model({**model, "metadata": {**model["metadata"], **where}}).spec is not None
    assert MODEL in NOTES


def test_the_images_are_those_of_the_values() -> None:
    told = {one["image"] for one in annotation("images")}
    images = (VALUES["image"], VALUES["worker"]["image"], VALUES["gateway"]["image"])

    assert told == {f"{i['registry']}/{i['repository']}:{i['tag'] or CHART['appVersion']}" for i in images}


def test_what_artifact_hub_shows_is_there() -> None:
    where = "https://localhost/inference-operator"
    addresses = (CHART["home"], *CHART["sources"], CHART["icon"], *(one["url"] for one in annotation("links")))

    # A release writes its own address in this one's place (RELEASING.md).
    assert all(address.startswith(where) for address in addresses)
    assert all((ROOT / address.removeprefix(where).removeprefix("/")).exists() for address in addresses)
    assert CHART["type"] == "application" and CHART["maintainers"] and CHART["kubeVersion"].endswith("-0")
    assert {name for name in CHART["annotations"] if not name.startswith("artifacthub.io/")} == set()


LOOKED_FOR = """
nameOverride fullnameOverride namespaceOverride commonLabels imagePullSecrets replicaCount revisionHistoryLimit strategy watchNamespaces
image.registry image.repository image.tag image.digest image.pullPolicy resources nodeSelector tolerations affinity
serviceAccount.create serviceAccount.name serviceAccount.annotations serviceAccount.automount topologySpreadConstraints
rbac.create rbac.aggregateToView rbac.aggregateToEdit rbac.aggregateToAdmin priorityClassName runtimeClassName hostUsers hostNetwork
podAnnotations podLabels deploymentAnnotations podSecurityContext securityContext livenessProbe readinessProbe dnsPolicy
extraEnv extraVolumes extraVolumeMounts extraContainers initContainers extraObjects logLevel logFormat
podDisruptionBudget.enabled podDisruptionBudget.minAvailable podDisruptionBudget.maxUnavailable networkPolicy.enabled
crds.enabled crds.keep crds.annotations customMetrics.certificate customMetrics.certManager customMetrics.authReaderBinding
metrics.serviceMonitor.enabled metrics.serviceMonitor.namespace metrics.serviceMonitor.interval metrics.serviceMonitor.scrapeTimeout
metrics.serviceMonitor.additionalLabels metrics.serviceMonitor.relabelings metrics.serviceMonitor.metricRelabelings
metrics.serviceMonitor.honorLabels metrics.podMonitor prometheusRule.enabled prometheusRule.additionalLabels prometheusRule.rules
grafanaDashboard.enabled grafanaDashboard.sidecarLabel grafanaDashboard.sidecarLabelValue grafanaDashboard.annotations
"""


@pytest.mark.parametrize("path", LOOKED_FOR.split())
def test_a_value_that_users_of_other_charts_look_for_is_there_under_its_usual_name(path: str) -> None:
    values = VALUES
    for step in path.split("."):
        assert step in values
        values = values[step]


def test_no_template_hangs_on_what_only_a_cluster_knows() -> None:
    """`helm template` and Argo CD look nothing up and may know no APIs: monitors alone ask for theirs, and a value says what then."""
    templates = {path.name: path.read_text() for path in (SCHEMA_FILE.parent / "templates").rglob("*.*") if path.is_file()}

    assert not [name for name, text in templates.items() if re.search(r"\blookup\b", text)]
    assert [name for name, text in templates.items() if ".Capabilities" in text] == ["_monitoring.tpl"]


@pytest.mark.parametrize(("page", "values"), SHOWN, ids=[f"{page}-{at}" for at, (page, _) in enumerate(SHOWN)])
def test_values_on_a_page_are_taken(page: str, values: dict[str, Any]) -> None:
    """Classes and parts that the page leaves out stand in the chart's own values."""
    validator = Draft7Validator(json.loads(SCHEMA_FILE.read_text()))
    found = [error.message for error in validator.iter_errors(without_nulls(values)) if "required property" not in error.message]

    assert found == [], page


@pytest.mark.parametrize("file", ["operator/Containerfile", "worker-image/Containerfile"])
def test_images_of_several_platforms_are_built_from_files_that_name_none(file: str) -> None:
    assert re.search("x86|amd64|aarch64|arm64", (ROOT / file).read_text()) is None
    assert all(one["platforms"] == ["linux/amd64", "linux/arm64"] for one in annotation("images") if "platforms" in one)
