"""kubectl inference and the client against the real API server, beside the real operator."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import yaml

from inference_client import Client, Goal, InferenceJob, InferenceJobSpec, Input, Metadata, NotFoundError
from inference_client.aio import AsyncClient
from kubectl_inference.__main__ import main
from tests.cluster.client import jobs, models
from tests.cluster.conftest import make_namespace
from tests.cluster.objects import a_batch, a_job, a_model
from tests.cluster.operators import FAILURE, PATIENCE_SECONDS, SUCCESS, Installed

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from tests.cluster.conftest import Cluster


_PARTS = {"clientCertificateData": "certificate", "clientKeyData": "key"}


@dataclass
class Plugin:
    """Runs commands in one namespace, as a user does."""

    kubeconfig: Path
    namespace: str
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """The output of a command; its errors are checked to be where errors belong."""
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--kubeconfig", str(self.kubeconfig), "-n", self.namespace])
        out, self.errors = self.capsys.readouterr()
        assert (ended.value.code or 0) == code, f"{out}\n{self.errors}"
        return out


@pytest.fixture
def space(cluster: Cluster, installed: Installed) -> str:
    name = make_namespace(cluster.client, **{"pod-security.kubernetes.io/enforce": "restricted"})
    cluster.client.create(models(name), a_model())
    return name


@pytest.fixture
def plugin(cluster: Cluster, space: str, capsys: pytest.CaptureFixture[str]) -> Plugin:
    return Plugin(cluster.kubeconfig, space, capsys)


def test_a_batch_from_submit_to_its_result(plugin: Plugin, installed: Installed, space: str, tmp_path: Path) -> None:
    assert plugin("submit", "job", "--model", "digits", "--data", '{"x": 1}', "--deadline", "1h") == (
        "inferencejob.inference.myorg/job created\n"
    )
    installed.play(space, SUCCESS)
    installed.wait_reason(space, "Succeeded")

    page = plugin("status", "job")
    assert "batch" in page and "Succeeded" in page and "met: the job was done" in page
    assert "Started" in page and "Placed" in page, "the events"
    table = plugin("top")
    assert table.split()[0] == "NAME" and table.splitlines()[1].split()[:2] == ["job", "Succeeded"]
    assert json.loads(plugin("top", "-o", "json"))["items"][0]["metadata"]["name"] == "job"
    assert plugin("top", "-o", "name") == "inferencejob.inference.myorg/job\n"
    assert "The place with the lowest cost" in plugin("explain", "ij/job")
    assert plugin("wait", "job", "--for", "succeeded") == '{"y": 1}\n{"y": 2}\n'
    assert plugin("download", "job", str(tmp_path / "out")) == f"{tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "output.jsonl").read_text() == '{"y": 1}\n{"y": 2}\n'
    found = json.loads(plugin("download", "job", str(tmp_path / "out"), "-o", "json"))
    assert (found["files"], found["items"], found["whole"]) == (["output.jsonl"], 2, True)


@pytest.mark.parametrize(
    ("job", "why", "help_"),
    [
        (a_batch(model="digts"), "ModelUnknown", "Did you mean digits?"),
        (a_batch(resources={"requests": {"cpu": "4711"}}), "NoNodeFits", "kubectl inference explain job"),
        (
            a_batch(deadline="2026-01-01T00:00:00Z", deadlinePolicy="Firm"),
            "DeadlineExceeded",
            '{"spec": {"deadlinePolicy": "Soft"}}',
        ),
    ],
    ids=["typo", "no node", "deadline"],
)
def test_the_page_names_the_cause_and_what_to_do(
    plugin: Plugin, cluster: Cluster, installed: Installed, space: str, job: dict, why: str, help_: str
) -> None:
    cluster.client.create(jobs(space), job)
    installed.wait_reason(space, why)

    page = " ".join(plugin("status", "job").split())

    assert f"Cause {why}:" in page and help_ in page


def test_a_wait_tells_the_cause_of_a_failure(
    plugin: Plugin, cluster: Cluster, installed: Installed, space: str, tmp_path: Path
) -> None:
    cluster.client.create(jobs(space), a_batch())
    installed.play(space, FAILURE)
    installed.wait_reason(space, "ModelNotFound", kind="Stalled")
    other = tmp_path / "job.yaml"
    other.write_text(yaml.safe_dump({**a_batch(model="digts"), "metadata": {"name": "other"}}))

    out = plugin("submit", "-f", str(other), "--wait", "--timeout", "2s", code=4)

    assert out == "inferencejob.inference.myorg/other created\n"
    assert "other is not Finished after 2 s: ModelUnknown" in " ".join(plugin.errors.split())
    assert plugin("wait", "job", code=3) == ""
    assert "error: inferencejob/job has failed: ModelNotFound: " in " ".join(plugin.errors.split())


def test_a_wait_for_a_service_ends_when_only_a_change_helps(
    plugin: Plugin, cluster: Cluster, installed: Installed, space: str
) -> None:
    cluster.client.create(jobs(space), a_job())
    installed.end(installed.worker(space), FAILURE)
    installed.wait_reason(space, "ModelNotFound", kind="Stalled")

    for goal in ("finished", "ready"):
        assert plugin("wait", "job", "--for", goal, "--timeout", "1h", code=3) == ""
        assert "error: inferencejob/job has failed: ModelNotFound: " in " ".join(plugin.errors.split())
    assert plugin("retry", "job") == "inferencejob.inference.myorg/job retried\n"
    installed.end(installed.worker(space, number=2), FAILURE)
    plugin("wait", "job", "--timeout", "1h", code=3)


def test_a_failed_batch_is_suspended_resumed_and_tried_again(
    plugin: Plugin, cluster: Cluster, installed: Installed, space: str
) -> None:
    cluster.client.create(jobs(space), a_batch())
    installed.play(space, FAILURE)
    installed.wait_reason(space, "ModelNotFound", kind="Stalled")

    assert plugin("retry", "job") == "inferencejob.inference.myorg/job retried\n"
    installed.wait_reason(space, "Starting")
    assert plugin("suspend", "job").endswith("suspended\n")
    installed.wait_reason(space, "Suspended", kind="Suspended")
    assert "kubectl inference resume job" in plugin("status", "job")
    plugin("resume", "job")
    assert installed.wait_reason(space, "Starting")["spec"]["suspend"] is False


def test_errors_are_the_servers_words_on_stderr(plugin: Plugin) -> None:
    assert plugin("status", "nobody", code=1) == ""
    assert plugin.errors == 'error: inferencejobs.inference.myorg "nobody" not found\n'
    plugin("submit", "job", "--model", "digits", "--data", "{}", "--batch-size", "0", code=1)
    assert "spec.batchSize" in plugin.errors
    plugin("submit", "job", "--model", "digits", "--min-replicas", "1")
    plugin("submit", "job", "--model", "digits", code=1)
    assert "already exists" in plugin.errors
    plugin("logs", "job", "--attempt", "7", code=1)
    assert "has no worker of attempt 7" in plugin.errors


def test_a_batch_in_buckets_names_the_secrets_of_both_ends(plugin: Plugin) -> None:
    """What the API server takes is what the page on buckets shows."""
    ends = ("--input", "s3://rows/x.npz", "--input-secret", "reader", "--output-uri", "s3://answers/x", "--output-secret", "writer")

    checked = json.loads(plugin("submit", "job", "--model", "digits", *ends, "--dry-run", "server", "-o", "json"))

    assert checked["spec"]["input"]["storage"] == {"secretRef": {"name": "reader"}}
    assert checked["spec"]["output"] == {"uri": "s3://answers/x", "storage": {"secretRef": {"name": "writer"}}}


def test_a_dry_run_creates_nothing(plugin: Plugin) -> None:
    shown = yaml.safe_load(plugin("submit", "job", "--model", "digits", "--min-replicas", "2", "--dry-run", "client"))
    checked = json.loads(plugin("submit", "job", "--model", "digits", "--dry-run", "server", "-o", "json"))

    assert shown["spec"] == {"model": "digits", "serve": {"minReplicas": 2}}
    assert checked["metadata"]["uid"]
    plugin("status", "job", code=1)


def test_a_report_has_what_is_needed_and_no_secret(
    plugin: Plugin, cluster: Cluster, installed: Installed, space: str, tmp_path: Path
) -> None:
    cluster.client.create(jobs(space), a_batch(input={"data": '{"x": "my own data"}'}))
    installed.worker(space)

    plugin("report", "job", "--file", str(tmp_path / "report.tar.gz"))

    with tarfile.open(tmp_path / "report.tar.gz") as archive:
        texts = {one.name: (archive.extractfile(one) or pytest.fail(one.name)).read().decode() for one in archive}
    assert {f"job-report/{name}" for name in ("job.yaml", "model.yaml", "pods.yaml", "status.txt", "events.yaml")} <= texts.keys()
    assert "my own data" not in "".join(texts.values())
    (pod,) = yaml.safe_load(texts["job-report/pods.yaml"])["items"]
    variables = [one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"] == "INFERENCE_WORKER_CONFIG"]
    assert variables in ([], ["REDACTED"])


def test_versions_are_told(plugin: Plugin, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["version", "--kubeconfig", str(cluster.kubeconfig)])

    assert "api: inference.myorg/v1\n" in capsys.readouterr().out


async def test_the_client_for_event_loops_does_the_same(cluster: Cluster, installed: Installed, space: str) -> None:
    import asyncio

    async with await AsyncClient.from_kubeconfig(str(cluster.kubeconfig), namespace=space) as client:
        made = await client.jobs.submit(
            InferenceJob(metadata=Metadata(name="job"), spec=InferenceJobSpec(model="digits", input=Input(data='{"x": 1}')))
        )
        waiting: asyncio.Task[InferenceJob] = asyncio.ensure_future(
            client.jobs.wait("job", Goal.SUCCEEDED, timeout=PATIENCE_SECONDS)
        )
        await asyncio.to_thread(installed.play, space, SUCCESS)

        assert made.spec.batch_size == 1 and (await waiting).status.attempts == 1
        assert [one.metadata.name for one in await client.jobs.list()] == ["job"]
        assert (await client.jobs.result("job")).completed == 2
        await client.jobs.delete("job")
        with pytest.raises(NotFoundError):
            await client.jobs.get("job")


def test_a_watch_shows_each_change_and_ends(cluster: Cluster, installed: Installed, space: str) -> None:
    cluster.client.create(jobs(space), a_job(suspend=True))
    installed.wait_reason(space, "Suspended", kind="Suspended")

    with Client.from_kubeconfig(str(cluster.kubeconfig), namespace=space) as client:
        changes = client.jobs.watch("job", timeout=PATIENCE_SECONDS)
        assert next(changes).spec.suspend
        client.jobs.resume("job")
        assert not next(changes).spec.suspend
        client.jobs.delete("job")
        with pytest.raises(NotFoundError, match="deleted"):
            list(changes)


def test_contexts_and_exec_credentials_are_kubectls(plugin: Plugin, cluster: Cluster, space: str, tmp_path: Path) -> None:
    """The namespace is the context's, and the certificate comes from a program."""
    document = json.loads(cluster.kubeconfig.read_text())
    user = document["users"][0]["user"]
    data = {key: base64.b64decode(user[f"client-{kind}-data"]).decode() for key, kind in _PARTS.items()}
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": data}
    program = tmp_path / "credential"
    program.write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps(credential)}\nE\n")
    program.chmod(0o755)
    given = {"apiVersion": credential["apiVersion"], "command": str(program), "interactiveMode": "Never"}
    document["users"].append({"name": "program", "user": {"exec": given}})
    context = {"cluster": document["clusters"][0]["name"], "user": "program", "namespace": space}
    document["contexts"].append({"name": "mine", "context": context})
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    cluster.client.create(jobs(space), a_batch(suspend=True))

    with pytest.raises(SystemExit) as ended:
        main(["top", "--kubeconfig", str(path), "--context", "mine", "-o", "name"])

    assert (ended.value.code, plugin.capsys.readouterr().out) == (0, "inferencejob.inference.myorg/job\n")
    plugin("top", "--context", "nowhere", code=1)
    assert "nowhere" in plugin.errors


def test_a_shell_completes_names_of_jobs(cluster: Cluster, space: str) -> None:
    cluster.client.create(jobs(space), a_batch(name="digits-batch"))
    cluster.client.create(jobs(space), a_batch(name="other"))
    words = ["status", "-n", space, "--kubeconfig", str(cluster.kubeconfig), "di"]

    done = subprocess.run(
        [sys.executable, "-m", "kubectl_inference.completion", *words], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["digits-batch", ":4"]


def test_a_page_is_shown_again_after_a_change_until_interrupted(cluster: Cluster, installed: Installed, space: str) -> None:
    cluster.client.create(jobs(space), a_job(suspend=True))
    installed.wait_reason(space, "Suspended", kind="Suspended")
    command = [
        sys.executable,
        "-m",
        "kubectl_inference",
        "status",
        "job",
        "-w",
        "-n",
        space,
        "--kubeconfig",
        str(cluster.kubeconfig),
    ]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as watching:
        assert watching.stdout is not None
        assert any("Suspended" in line for line in watching.stdout)
        cluster.client.merge(f"{jobs(space)}/job", {"spec": {"suspend": False}})
        assert any("Starting" in line for line in watching.stdout)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=PATIENCE_SECONDS) == 130


def test_an_account_that_may_read_less_is_told_what_is_missing(
    plugin: Plugin, cluster: Cluster, space: str, tmp_path: Path
) -> None:
    """Jobs alone: the page says so, and takes nothing for absent."""
    cluster.client.create(jobs(space), a_batch(model="digts"))
    role = [{"apiGroups": ["inference.myorg"], "resources": ["inferencejobs"], "verbs": ["get", "list", "watch"]}]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}"
    cluster.client.create(f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": role})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": space}],
    }
    cluster.client.create(f"{rbac}/rolebindings", binding)
    accounts = f"/api/v1/namespaces/{space}/serviceaccounts"
    cluster.client.create(accounts, {"metadata": {"name": "reader"}})
    token = cluster.client.create(f"{accounts}/reader/token", {"spec": {}})["status"]["token"]
    document = json.loads(cluster.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    (tmp_path / "kubeconfig").write_text(json.dumps(document))

    page = Plugin(tmp_path / "kubeconfig", space, plugin.capsys)
    out = page("status", "job")

    assert "digts" in out
    assert "note: pods can't be read" in page.errors and "note: events can't be read" in page.errors
