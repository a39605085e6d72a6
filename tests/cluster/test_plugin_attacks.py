"""What the real API server takes of a job's author, and what the plug-in makes of it for whoever looks."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from inference_client import Client
from kubectl_inference import visible
from kubectl_inference.__main__ import main
from tests.cluster.client import MERGE, jobs, models
from tests.cluster.conftest import make_namespace
from tests.cluster.objects import a_batch, a_condition, a_model

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.conftest import Cluster

OBEYED = "\x1b[2J\x1b]0;x\x07\x9b31m\u202e"
SEEN = {"observedGeneration": 1, "conditions": [a_condition("Ready", "False")]}


@dataclass
class Space:
    """One namespace of an author, and somebody who looks at it."""

    cluster: Cluster
    name: str
    capsys: pytest.CaptureFixture[str]
    errors: str = ""

    def plugin(self, *arguments: str, code: int = 0) -> str:
        """What a command shows, none of which a terminal obeys."""
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--kubeconfig", str(self.cluster.kubeconfig), "-n", self.name])
        out, self.errors = self.capsys.readouterr()
        assert (ended.value.code or 0) == code, f"{out}\n{self.errors}"
        assert visible.is_plain(out) and visible.is_plain(self.errors)
        return out

    def job(self, name: str = "job", status: dict[str, Any] | None = None, **spec: Any) -> str:
        """Make a job; returns its uid."""
        made = self.cluster.client.create(jobs(self.name), a_batch(name, **spec))
        if status is not None:
            answer = self.cluster.client.call("PATCH", f"{jobs(self.name)}/{name}/status", {"status": status}, kind=MERGE)
            assert answer.ok, answer.message
        return str(made["metadata"]["uid"])

    def ended_pod(self, uid: str, message: str) -> None:
        """A pod with a worker's label, and last words of its own."""
        labels = {"inference.myorg/job-uid": uid, "inference.myorg/attempt": "1"}
        pods = f"/api/v1/namespaces/{self.name}/pods"
        container = {"name": "worker", "image": "x", "env": [{"name": "A", "value": "s3cret"}]}
        self.cluster.client.create(pods, {"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [container]}})
        ended = {"exitCode": 1, "reason": "Error", "message": message}
        told = {"name": "worker", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}
        status = {"status": {"phase": "Failed", "containerStatuses": [told]}}
        answer = self.cluster.client.call("PATCH", f"{pods}/p/status", status, kind=MERGE)
        assert answer.ok, answer.message

    def event(self, **changes: Any) -> None:
        """An event about the job."""
        event = {
            "metadata": {"generateName": "e", "namespace": self.name},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "a/b",
            "reportingInstance": "i",
            "action": "A",
            "type": "Normal",
            "reason": "R",
            "regarding": {"kind": "InferenceJob", "name": "job", "namespace": self.name},
            "note": "n",
            **changes,
        }
        self.cluster.client.create(f"/apis/events.k8s.io/v1/namespaces/{self.name}/events", event)


@pytest.fixture
def space(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Space:
    name = make_namespace(cluster.client)
    cluster.client.create(models(name), a_model())
    return Space(cluster, name, capsys)


def test_no_page_of_what_the_api_server_takes_is_obeyed(space: Space) -> None:
    conditions = [{**a_condition("Ready", "False", f"X{OBEYED}"), "message": f"[/red]{OBEYED}\n\nCause\n  fine"}]
    space.job(model=f"pvc://x/{OBEYED}", status={**SEEN, "conditions": conditions, "phase": f"R{OBEYED}", "reason": "[/x]"})
    space.event(reason=f"a\nb{OBEYED}", note=OBEYED)

    for command in (
        ("status", "job"),
        ("explain", "job"),
        ("top", "-o", "wide"),
        ("top", "-o", "json"),
        ("status", "job", "-o", "yaml"),
    ):
        assert space.plugin(*command)


@pytest.mark.parametrize(
    "message", ["[" * 4000, '{"message": "\\ud800\\u001b[2J"}', "9" * 4000], ids=["nested", "surrogate", "number"]
)
def test_last_words_of_any_kind_end_no_command(space: Space, message: str, tmp_path: Path) -> None:
    space.ended_pod(space.job(status=SEEN), message)

    assert "container worker: " in space.plugin("status", "job")
    space.plugin("report", "job", "--no-logs", "--file", str(tmp_path / "r.tar.gz"))
    with tarfile.open(tmp_path / "r.tar.gz") as archive:
        texts = [(archive.extractfile(one) or pytest.fail(one.name)).read().decode() for one in archive]
    assert all(map(visible.is_plain, texts)) and "s3cret" not in "".join(texts)


def test_an_event_of_the_year_zero_ends_no_page(space: Space) -> None:
    space.job(status=SEEN)
    space.event(eventTime="0000-01-01T00:00:00.000000Z", note="of the year 0")

    assert "of the year 0" in space.plugin("status", "job")


@pytest.mark.parametrize("deadline", ["0000-01-01T00:00:00Z", "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00,5Z"])
def test_a_job_that_cannot_be_read_hides_no_other(space: Space, deadline: str) -> None:
    """The API server takes it for an instant."""
    space.job("other")
    space.job(deadline=deadline)

    assert [line.split()[0] for line in space.plugin("top").splitlines()] == ["NAME", "other"]
    assert f"note: left out: {space.name}/job: " in space.errors
    with Client.from_kubeconfig(str(space.cluster.kubeconfig), namespace=space.name) as client:
        found = client.jobs.list()
    assert [one.metadata.name for one in found] == ["other"] and [one.name for one in found.unreadable] == ["job"]
    space.plugin("status", "job", code=1)
    assert "is the client as new as the operator?" in space.errors


def test_the_conditions_of_a_job_that_cannot_be_read_are_shown_all_the_same(space: Space) -> None:
    space.job(
        deadline="0000-01-01T00:00:00Z",
        status={**SEEN, "conditions": [{**a_condition("Ready", "False"), "message": f"gone{OBEYED}"}]},
    )

    space.plugin("status", "job", code=1)

    assert "Ready" in space.errors and r"gone\x1b[2J" in space.errors


def test_a_result_may_hold_any_text_and_one_that_is_none_is_told(space: Space) -> None:
    done = {"observedGeneration": 1, "conditions": [a_condition("Succeeded"), a_condition("Ready")]}
    space.job(status={**done, "output": {"data": '{"y": "a\u2028b\x85c\x9b"}\n'}})
    assert json.loads(space.plugin("wait", "job")) == {"y": "a\u2028b\x85c\x9b"}

    space.job("other", status={**done, "output": {"data": "no JSON"}})
    space.plugin("wait", "other", code=1)
    assert "is no JSON lines" in space.errors
