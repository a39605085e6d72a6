"""What `helm test` runs: the real program against a real API server, as the account that the chart gives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from inference_operator.api.names import FIELD_MANAGER
from inference_operator.install_check import MODEL
from tests.cluster.client import Client, jobs
from tests.cluster.operators import FAILURE, SUCCESS, Release, until

if TYPE_CHECKING:
    from pathlib import Path

    from inference_protocol.messages import TerminationReport
    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster
    from tests.cluster.operators import Installed

HOOK = "tests/install-check.yaml"


class Check:
    """The program, as the hook's pod runs it."""

    def __init__(self, cluster: Cluster, folder: Path, namespace: str, seconds: int) -> None:
        release = Release(namespace=namespace, account="checked", values=(f"test.namespace={namespace}",))
        cluster.kubectl("apply", "-f", "-", stdin=release.render(HOOK))
        pod = next(one for one in yaml.safe_load_all(release.render(HOOK)) if one["kind"] == "Pod")
        account, container = pod["spec"]["serviceAccountName"], pod["spec"]["containers"][0]
        token = cluster.kubectl("create", "token", account, "-n", namespace).stdout.strip()
        document = json.loads(cluster.kubeconfig.read_text())
        document["users"][0]["user"] = {"token": token}
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(document))
        assert container["args"][0] == namespace
        self.client = Client(cluster.kubeconfig, token=token)
        self.process = subprocess.Popen(
            [sys.executable, *container["command"][3:], namespace, str(seconds)],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


def the_job(cluster: Cluster, namespace: str) -> Raw:
    found: list[Raw] = until(lambda: cluster.client.get(jobs(namespace))["items"], "the job of the check")
    return found[0]


@pytest.mark.parametrize(("report", "code"), [(SUCCESS, 0), (FAILURE, 1)], ids=["succeeds", "fails"])
def test_it_ends_as_its_job_and_leaves_none(
    cluster: Cluster, installed: Installed, namespace: str, tmp_path: Path, report: TerminationReport, code: int
) -> None:
    check = Check(cluster, tmp_path, namespace, 60)
    job = the_job(cluster, namespace)
    installed.play(namespace, report, name=job["metadata"]["name"])

    ended, err = check.end()

    assert job["spec"]["model"] == MODEL and job["metadata"]["managedFields"][0]["manager"] == FIELD_MANAGER
    assert ended == code, err
    assert 'has succeeded: {"y": 1}\n{"y": 2}' in err if code == 0 else "ModelNotFound: there is no such file" in err
    assert cluster.client.get(jobs(namespace))["items"] == []


def test_it_says_how_a_job_stands_that_is_not_done_in_time(
    cluster: Cluster, installed: Installed, namespace: str, tmp_path: Path
) -> None:
    ended, err = Check(cluster, tmp_path, namespace, 3).end()

    assert ended == 1
    assert "has not succeeded in time" in err and "Placed" in err
    assert cluster.client.get(jobs(namespace))["items"] == []


def test_its_account_may_run_jobs_there_and_nothing_else(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    check = Check(cluster, tmp_path, namespace, 1)
    refused = [
        check.client.call("GET", f"/api/v1/namespaces/{namespace}/{kind}").code for kind in ("secrets", "pods", "configmaps")
    ]

    ended, err = check.end()

    assert refused == [403, 403, 403] and check.client.call("GET", jobs("default")).code == 403
    assert ended == 1 and "no operator has looked at the job" in err
