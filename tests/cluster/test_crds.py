"""The CRDs as users meet them: applying, explaining, printing, selecting, scaling."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.client import jobs, models
from tests.cluster.objects import LATER, a_batch, a_condition, a_job, a_model
from tests.kstatus import kstatus
from tests.pages import manifests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster

REPOSITORY = Path(__file__).resolve().parents[2]
MISSION = """\
apiVersion: inference.myorg/v1
kind: InferenceJob
metadata:
  name: lane-detection-001
spec:
  model: lane-detection-v2
  accelerator: gpu
  deadline: "2026-04-02T12:00:00Z"
  batchSize: 4
"""
STATUS = {
    "observedGeneration": 1,
    "phase": "Running",
    "reason": "Running",
    "conditions": [a_condition("Ready", "False", "Running")],
    "deadline": {"time": LATER, "outlook": "OnTime", "slackSeconds": 4711},
    "placement": {
        "accelerator": "cpu",
        "node": "node-7",
        "pod": "job-1",
        "executionProvider": "CPUExecutionProvider",
        "cost": {"total": 1.5, "latencySeconds": 1.0, "energyJoules": 2.0, "switchSeconds": 0.5, "estimated": False},
        "decisionTime": "2026-01-01T00:00:00Z",
    },
    "latency": {"p50": 1.0, "p95": 12.5, "p99": 20.0, "count": 9, "observedTime": "2026-01-01T00:00:00Z"},
    "progress": {"total": 80, "completed": 33},
}


def crds() -> Iterator[Raw]:
    for path in sorted((REPOSITORY / "crds").glob("*.yaml")):
        yield yaml.safe_load(path.read_text())


def test_the_crds_apply_by_client_and_by_server_and_are_established(cluster: Cluster) -> None:
    # The fixture has applied them from the client's side already.
    for arguments in (("apply",), ("apply", "--server-side", "--force-conflicts")):
        cluster.kubectl(*arguments, "-f", str(REPOSITORY / "crds"))

    for crd in crds():
        found = cluster.client.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}")
        truths = {c["type"]: c["status"] for c in found["status"]["conditions"]}
        assert truths["Established"] == truths["NamesAccepted"] == "True"
        assert truths.get("NonStructuralSchema", "False") == "False"


def test_the_chart_ships_the_same_crds(cluster: Cluster) -> None:
    shipped = REPOSITORY / "charts" / "inference-operator" / "files" / "crds"

    assert [yaml.safe_load(path.read_text()) for path in sorted(shipped.glob("*.yaml"))] == list(crds())


def test_the_manifest_of_the_mission_applies_unchanged_with_defaults_stored(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=MISSION)

    assert cluster.client.get(f"{jobs(namespace)}/lane-detection-001")["spec"] == {
        "model": "lane-detection-v2",
        "accelerator": "gpu",
        "deadline": "2026-04-02T12:00:00Z",
        "batchSize": 4,
        "backend": "auto",
        "deadlinePolicy": "Soft",
        "maxAttempts": 3,
        "priority": 0,
        "replicas": 1,
        "suspend": False,
    }


def test_every_list_of_a_manifest_is_read_back_as_it_was_applied(cluster: Cluster, namespace: str) -> None:
    """Otherwise it is OutOfSync in Argo CD for ever (argoproj/argo-cd#11074)."""
    places = {"InferenceJob": jobs(namespace), "InferenceModel": models(namespace)}
    shown = [one for where, one in manifests() if one["kind"] in places and (where == "README.md" or "/" not in where)]
    # What the examples leave out.
    shown.append(a_job("all", tolerations=[{"key": "gpu"}], template={"env": [{"name": "A"}]}))
    shown.append(a_model("all", declaredProfiles=[{"accelerator": "cpu", "itemsPerSecond": 2.0}]))

    for one in shown:
        raw = {**one, "metadata": {"name": one["metadata"]["name"], "namespace": namespace}}
        cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(raw))
        read = cluster.client.get(f"{places[one['kind']]}/{one['metadata']['name']}")
        assert _lists(read["spec"]) == _lists(one["spec"]), one["metadata"]["name"]


def test_the_api_server_takes_every_job_and_model_on_a_page(cluster: Cluster, namespace: str) -> None:
    """By a dry run, as strict as kubectl is: a field that the schema lacks is refused too."""
    places = {"InferenceJob": jobs(namespace), "InferenceModel": models(namespace)}
    refused = [
        f"{where}: {answer.message}"
        for where, one in manifests()
        if one["kind"] in places
        for raw in ({**one, "metadata": {**one["metadata"], "namespace": namespace}},)
        if not (answer := cluster.client.call("POST", places[one["kind"]], raw, dryRun="All", fieldValidation="Strict")).ok
    ]

    assert refused == []


def test_nested_defaults_are_stored_too(cluster: Cluster, namespace: str) -> None:
    job = cluster.client.create(jobs(namespace), a_job(serve={"maxReplicas": 4}, autoscaling={}, tolerations=[{"key": "gpu"}]))
    batch = cluster.client.create(jobs(namespace), a_batch("batch"))
    model = cluster.client.create(models(namespace), a_model(warmPool={}))

    serve = {"minReplicas": 1, "maxReplicas": 4, "modelControl": "None", "sharedMemory": "None", "headless": False}
    assert job["spec"]["serve"] == serve
    assert job["spec"]["autoscaling"] == {"mode": "None"}
    # None inside of a list.
    assert job["spec"]["tolerations"] == [{"key": "gpu"}]
    assert batch["spec"]["input"] | {"data": ""} == {"data": "", "format": "auto", "allowNonFinite": False}
    pool = {"min": 0, "idleSeconds": 300, "accelerator": "auto", "backend": "auto", "batchSize": 32, "sharing": "None"}
    assert model["spec"]["warmPool"] == pool
    assert "format" not in model["spec"]["versions"][0]


def test_an_object_that_nobody_has_looked_at_is_in_progress(cluster: Cluster, namespace: str) -> None:
    cluster.client.create(jobs(namespace), a_job())
    cluster.client.create(models(namespace), a_model())

    assert kstatus(cluster.client.get(f"{jobs(namespace)}/job")) == "InProgress"
    assert kstatus(cluster.client.get(f"{models(namespace)}/digits")) == "InProgress"


def test_every_field_is_explained(cluster: Cluster) -> None:
    silent = [
        path
        for crd in crds()
        for path, schema in _fields(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], crd["spec"]["names"]["singular"])
        if not schema.get("description")
    ]

    assert silent == []
    said = cluster.kubectl("explain", "inferencejob.spec.deadline").stdout
    assert "When a batch must be finished, or a serving job ready" in said
    assert "outlook" in cluster.kubectl("explain", "ij.status", "--recursive").stdout


def test_the_columns_show_how_a_job_stands(cluster: Cluster, namespace: str) -> None:
    _with_status(cluster, namespace, a_batch(deadline=LATER))

    row = _table(cluster, namespace)

    assert {name: row[name] for name in ("ACCELERATOR", "REASON", "OUTLOOK", "SLACK(S)", "P95", "NODE")} == {
        "ACCELERATOR": "cpu",
        "REASON": "Running",
        "OUTLOOK": "OnTime",
        "SLACK(S)": "4711",
        "P95": "12.5",
        "NODE": "node-7",
    }
    assert row["AGE"].endswith("s")


def test_the_wide_columns_show_the_rest(cluster: Cluster, namespace: str) -> None:
    _with_status(cluster, namespace, a_batch(deadline=LATER))

    row = _table(cluster, namespace, "-o", "wide")

    assert (row["MODEL"], row["PROVIDER"], row["COMPLETED"], row["TOTAL"]) == ("digits", "CPUExecutionProvider", "33", "80")


def test_the_wide_columns_show_a_deadline_that_is_still_to_come(cluster: Cluster, namespace: str) -> None:
    _with_status(cluster, namespace, a_batch(deadline=LATER))

    assert _table(cluster, namespace, "-o", "wide")["DEADLINE"] == LATER


def test_a_model_prints_its_versions(cluster: Cluster, namespace: str) -> None:
    """A column shows one match of its path: of a list of versions it would be the first."""
    cluster.client.create(models(namespace), a_model())
    usage = {"jobs": 3, "names": ["a", "b", "c"], "observedTime": "2026-01-01T00:00:00Z"}
    status = {"versions": "1,1-int8", "defaultVersion": "1-int8", "conditions": [a_condition("Ready")], "usage": usage}
    cluster.client.merge(f"{models(namespace)}/digits/status", {"status": status})

    said = cluster.kubectl("get", "im", "-n", namespace).stdout

    assert [line.split()[:5] for line in said.splitlines()] == [
        ["NAME", "DEFAULT", "VERSIONS", "READY", "JOBS"],
        ["digits", "1-int8", "1,1-int8", "True", "3"],
    ]


@pytest.mark.parametrize(
    "selector",
    ["spec.model=lanes", "spec.accelerator=gpu", "spec.suspend=true", "status.phase=Running", "status.placement.node=node-7"],
)
def test_jobs_are_found_by_their_selectable_fields(cluster: Cluster, namespace: str, selector: str) -> None:
    _with_status(cluster, namespace, a_job("wanted", model="lanes", accelerator="gpu", suspend=True))
    cluster.client.create(jobs(namespace), a_job("other"))

    found = cluster.kubectl("get", "inferencejobs", "-n", namespace, f"--field-selector={selector}", "-o", "name").stdout

    assert found.split() == ["inferencejob.inference.myorg/wanted"]


def test_the_categories_and_short_names_work(cluster: Cluster, namespace: str) -> None:
    cluster.client.create(jobs(namespace), a_job())
    cluster.client.create(models(namespace), a_model())

    found = cluster.kubectl("get", "inference", "-n", namespace, "-o", "name").stdout.split()

    assert sorted(found) == ["inferencejob.inference.myorg/job", "inferencemodel.inference.myorg/digits"]


def test_scale_reads_and_writes_the_number_of_workers(cluster: Cluster, namespace: str) -> None:
    _with_status(cluster, namespace, a_job(), replicas=2, selector="inference.myorg/job-uid=u")
    path = f"{jobs(namespace)}/job/scale"

    scale = cluster.client.get(path)
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 1},
        {"replicas": 2, "selector": "inference.myorg/job-uid=u"},
    )
    scale["spec"]["replicas"] = 5
    assert cluster.client.call("PUT", path, scale).ok
    assert cluster.client.get(f"{jobs(namespace)}/job")["spec"]["replicas"] == 5
    cluster.kubectl("scale", "ij/job", "-n", namespace, "--replicas=3")
    assert cluster.client.get(f"{jobs(namespace)}/job")["spec"]["replicas"] == 3


def test_scale_refuses_what_the_schema_refuses(cluster: Cluster, namespace: str) -> None:
    cluster.client.create(jobs(namespace), a_job())

    refused = cluster.client.call(
        "PATCH", f"{jobs(namespace)}/job/scale", {"spec": {"replicas": 1001}}, kind="application/merge-patch+json"
    )

    assert refused.code == 422
    assert "less than or equal to 1000" in refused.message


ENDS = [
    {"type": "Succeeded", "status": truth, "reason": "Ended", "message": "", "lastTransitionTime": LATER, "observedGeneration": 1}
    for truth in ("True", "False")
]


def _ended(cluster: Cluster, namespace: str, condition: dict, job: dict) -> str:
    cluster.client.create(jobs(namespace), job)
    path = f"{jobs(namespace)}/{job['metadata']['name']}"
    cluster.client.merge(
        f"{path}/status",
        {
            "status": {
                "observedGeneration": 1,
                "phase": "Succeeded" if condition["status"] == "True" else "Failed",
                "conditions": [condition],
            }
        },
    )
    return path


EDITS = {
    "input": {"input": {"uri": "pvc://data/other.npy"}},
    "a part of the input": {"input": {"allowNonFinite": True}},
    "model": {"model": "other"},
    "digest": {"modelDigest": "sha256:" + "b" * 64},
    "batch size": {"batchSize": 7},
    "output": {"output": None, "input": {"uri": None, "data": "[1]"}},
}


@pytest.mark.parametrize("edit", EDITS)
def test_the_spec_of_a_batch_that_has_succeeded_stays(cluster: Cluster, namespace: str, edit: str) -> None:
    """What never ran must not look as if it had: GitOps would show it as healthy."""
    path = _ended(cluster, namespace, ENDS[0], a_batch(output={"uri": "pvc://data/out"}, input={"uri": "pvc://data/in.npy"}))

    refused = cluster.client.call("PATCH", path, {"spec": EDITS[edit]}, kind="application/merge-patch+json")

    assert refused.code == 422 and "create another job" in refused.message
    cluster.client.merge(path, {"spec": {"ttlSecondsAfterFinished": 60, "priority": 3}, "metadata": {"labels": {"a": "b"}}})


def test_a_failed_batch_and_a_service_that_is_over_may_be_edited(cluster: Cluster, namespace: str) -> None:
    for condition, job in ((ENDS[1], a_batch("failed")), (ENDS[0], a_job("over"))):
        cluster.client.merge(_ended(cluster, namespace, condition, job), {"spec": {"batchSize": 7}})


def test_the_status_path_takes_no_spec_and_the_main_path_no_status(cluster: Cluster, namespace: str) -> None:
    path = f"{jobs(namespace)}/job"
    created = cluster.client.create(jobs(namespace), {**a_job(), "status": {"phase": "Mine"}})
    assert "phase" not in created["status"] and created["status"]["observedGeneration"] == 0, "nobody has looked at it yet"

    cluster.client.merge(f"{path}/status", {"spec": {"priority": 9}, "status": {"phase": "Running"}})
    cluster.client.merge(path, {"spec": {"priority": 5}, "status": {"phase": "Mine"}})

    found = cluster.client.get(path)
    assert (found["spec"]["priority"], found["status"]["phase"]) == (5, "Running")
    assert found["metadata"]["generation"] == 2, "a status is no new generation"


def _with_status(cluster: Cluster, namespace: str, job: Raw, **status: object) -> None:
    cluster.client.create(jobs(namespace), job)
    cluster.client.merge(f"{jobs(namespace)}/{job['metadata']['name']}/status", {"status": {**STATUS, **status}})


def _table(cluster: Cluster, namespace: str, *options: str) -> dict[str, str]:
    """The one row of `kubectl get`, by column; columns are apart by two blanks or more where a cell is empty."""
    head, row = cluster.kubectl("get", "ij", "-n", namespace, *options).stdout.splitlines()
    starts = [head.index(name) for name in head.split()]
    ends = [*starts[1:], None]
    return {name: row[start:end].strip() for name, start, end in zip(head.split(), starts, ends, strict=True)}


def _lists(value: object, path: str = "") -> dict[str, list[object]]:
    """Every list, by its path."""
    found = {path: value} if isinstance(value, list) else {}
    for name, child in value.items() if isinstance(value, dict) else ():
        found |= _lists(child, f"{path}.{name}")
    return found


def _fields(schema: Raw, path: str) -> Iterator[tuple[str, Raw]]:
    for name, child in schema.get("properties", {}).items():
        if (path.count("."), name) in {(0, "apiVersion"), (0, "kind"), (0, "metadata")}:
            continue
        here = f"{path}.{name}"
        yield here, child
        yield from _fields(child.get("items", child), here)
