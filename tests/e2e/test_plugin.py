"""kubectl inference on the real cluster: from a file on this machine to an answer, and causes that only nodes can tell."""

import asyncio
import hashlib
import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import yaml

from examples.demo.cluster import Manifest, build_images
from inference_client.aio import AsyncClient
from kubectl_inference.__main__ import main
from tests.e2e.conftest import BUILT, Space

MODEL = BUILT / "digits" / "model.onnx"


def a_model(name: str, **version: str) -> Manifest:
    spec = {"versions": [{"name": "1", **version}]}
    return {"apiVersion": "inference.myorg/v1", "kind": "InferenceModel", "metadata": {"name": name}, "spec": spec}


class Plugin:
    """Runs commands in a space, as a user does."""

    def __init__(self, space: Space, capsys: pytest.CaptureFixture[str]) -> None:
        self.options = ("--kubeconfig", str(space.kube.kubeconfig), "-n", space.name)
        self.capsys = capsys
        self.errors = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, *self.options])
        out, self.errors = self.capsys.readouterr()
        assert (ended.value.code or 0) == code, f"{out}\n{self.errors}"
        return out


@pytest.fixture
def plugin(space: Space, capsys: pytest.CaptureFixture[str]) -> Plugin:
    return Plugin(space, capsys)


def test_a_model_is_pushed_served_and_asked(space: Space, plugin: Plugin, tmp_path: Path) -> None:
    image = build_images()["worker"]
    pushed = yaml.safe_load(plugin("push", str(MODEL), "data/out/plugin/model.onnx", "--image", image, "-o", "yaml"))
    assert (pushed["uri"], pushed["digest"]) == (
        "pvc://data/out/plugin/model.onnx",
        f"sha256:{hashlib.sha256(MODEL.read_bytes()).hexdigest()}",
    )
    assert (space.folder / "out" / "plugin" / "model.onnx").read_bytes() == MODEL.read_bytes()
    plugin("push", str(MODEL), "data/out/plugin/model.onnx", "--image", image, code=1)
    assert "is there already" in plugin.errors
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(a_model("pushed", uri=pushed["uri"], digest=pushed["digest"])))
    plugin("submit", "-f", str(tmp_path / "model.yaml"))

    out = plugin(
        "submit", "asked", "--model", "pushed", "--accelerator", "cpu", "--min-replicas", "1", "--wait", "--timeout", "60s"
    )
    assert out.splitlines()[1].startswith("http://asked.")
    rows = next(iter(np.load(space.folder / "digits" / "heldout.npz").values()))[:3]
    np.save(tmp_path / "rows.npy", rows)
    answers = [json.loads(plugin("predict", "asked", "-d", f"@{tmp_path}/rows.npy", *way)) for way in ((), ("--grpc",))]

    session = ort.InferenceSession(str(MODEL), providers=["CPUExecutionProvider"])
    truth = session.run(None, {session.get_inputs()[0].name: rows})[0]
    for answer in answers:
        np.testing.assert_allclose(answer["outputs"]["probabilities"], truth, atol=1e-5)
    plugin("predict", "asked", "-d", "[[1]]", code=1)
    assert "has the shape [-1, 64], and [1, 1] is given" in plugin.errors
    assert plugin("logs", "asked", "--current")
    assert plugin("logs", "asked", "--tail", "1", "-f", "--timeout", "1s") is not None
    assert "1 of 1 ready" in plugin("status", "asked")


def test_a_batch_is_submitted_and_waited_for(space: Space, plugin: Plugin) -> None:
    given = ("--input", "pvc://data/digits/heldout.npz", "--output-uri", "pvc://data/out/waited", "--batch-size", "32")
    out = plugin("submit", "waited", "--model", "digits", "--accelerator", "cpu", "--deadline", "2m", *given, "--wait")

    assert out.splitlines() == ["inferencejob.inference.myorg/waited created", "pvc://data/out/waited"]
    assert "met: the job was done" in plugin("status", "waited")


def test_an_output_is_fetched_from_its_claim(space: Space, plugin: Plugin, tmp_path: Path) -> None:
    """By the programs of a real image, through the real API server and kubelet, in both clients; and what is wrong is told."""
    image = build_images()["worker"]
    given = ("--input", "pvc://data/digits/heldout.npz", "--output-uri", "pvc://data/out/fetched", "--batch-size", "32")
    plugin("submit", "fetched", "--model", "digits", "--accelerator", "cpu", *given, "--wait")
    written = space.folder / "out" / "fetched"
    there = {one.name: one.read_bytes() for one in written.iterdir() if one.is_file()}

    out = plugin("download", "fetched", str(tmp_path / "out"), "--image", image)
    asyncio.run(fetched_in_a_loop(space, tmp_path / "loop", image))

    for folder in (tmp_path / "out", tmp_path / "loop"):
        assert {one.name: one.read_bytes() for one in folder.iterdir()} == there
    assert out == f"{tmp_path / 'out'}\n" and "599 of 599 items in" in plugin.errors
    again = json.loads(plugin("download", "fetched", str(tmp_path / "out"), "--image", image, "-o", "json"))
    assert again["kept"] == len(again["files"]) and again["whole"]
    chunk = again["files"][0]
    (written / chunk).write_bytes(b"another")
    plugin("download", "fetched", str(tmp_path / "other"), "--image", image, code=1)
    assert f"{chunk} has the digest" in plugin.errors
    (written / chunk).unlink()
    plugin("download", "fetched", str(tmp_path / "other"), "--image", image, code=1)
    assert "No such file or directory" in plugin.errors and list((tmp_path / "other").iterdir()) == []
    plugin("download", "fetched", str(tmp_path / "other"), "--image", "localhost/no-such-image:1", code=1)
    assert "the helper pod can't start" in plugin.errors
    pods = json.loads(space.kube.run("get", "pods", "-n", space.name, "-l", "app.kubernetes.io/component=download", "-o", "json"))
    assert all(one["metadata"].get("deletionTimestamp") for one in pods["items"])


async def fetched_in_a_loop(space: Space, folder: Path, image: str) -> None:
    async with await AsyncClient.from_kubeconfig(str(space.kube.kubeconfig), namespace=space.name) as client:
        found = await client.jobs.download("fetched", folder, image=image)
        assert found.whole and found.items == 599


def test_the_page_of_a_wrong_digest_shows_both(space: Space, plugin: Plugin) -> None:
    wrong = "sha256:" + "0" * 64
    space.kube.apply(a_model("mistaken", uri="pvc://data/digits/model.onnx", digest=wrong))
    given = ("--accelerator", "cpu", "--data", json.dumps({"pixels": [0] * 64}))
    plugin("submit", "mistaken", "--model", "mistaken", *given, "--wait", "--timeout", "60s", code=3)

    page = " ".join(plugin("status", "mistaken").split())
    assert "Cause ModelDigestMismatch:" in page and "kubectl inference push FILE data/digits/model.onnx" in page
    assert f"digest wanted {wrong}" in page


def test_the_page_of_a_missing_claim_lists_those_that_there_are(space: Space, plugin: Plugin) -> None:
    given = ("--model", "digits", "--accelerator", "cpu", "--input", "pvc://dta/in.npz", "--output-uri", "pvc://data/out/x")
    plugin("submit", "astray", *given, "--wait", "--timeout", "5s", code=4)

    page = " ".join(plugin("status", "astray").split())
    assert "VolumeUnavailable" in page and "this PersistentVolumeClaim: data" in page
