"""Serves the files of a claim inside the cluster, as a store of models would, and makes models of a size."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from examples.demo.cluster import Kubectl

Manifest = dict[str, Any]
PORT = 8080
_COLUMNS = 256


def serve(kube: Kubectl, image: str) -> str:
    """Start a web server over the claim `data`; returns its URL inside the cluster."""
    labels = {"app": "origin"}
    container = {
        "name": "origin",
        "image": image,
        "command": ["python3", "-I", "-u", "-m", "http.server", str(PORT), "-d", "/mnt/data"],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "data", "mountPath": "/mnt/data", "readOnly": True}],
    }
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"containers": [container], "securityContext": security, "volumes": volumes, "automountServiceAccountToken": False}
    kube.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "origin", "labels": labels}, "spec": spec},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "origin"},
            "spec": {"selector": labels, "ports": [{"port": PORT}]},
        },
    )
    kube.run("wait", "pod/origin", "--for=condition=Ready", "--timeout=120s")
    return f"http://origin.{kube.namespace}.svc:{PORT}"


def asked(kube: Kubectl, path: str) -> int:
    """How often the server was asked for a path."""
    return kube.run("logs", "origin").count(f'"GET {path} ')


def make_model(folder: Path, name: str, mebibytes: int) -> None:
    """Write a table that rows are taken from: a small file, with its weights of so many MiB beside it."""
    rows = (mebibytes << 20) // (4 * _COLUMNS)
    table = numpy_helper.from_array(np.zeros((1, _COLUMNS), np.float32), "w")
    table.ClearField("raw_data")
    table.dims[0] = rows
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value=f"{name}.bin")
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, ["N"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", _COLUMNS])]
    graph = helper.make_graph([helper.make_node("Gather", ["w", "x"], ["y"])], "g", inputs, outputs, [table])
    made: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    block = np.random.default_rng(7).integers(0, 256, 1 << 20, np.uint8).tobytes()
    with (folder / f"{name}.bin").open("wb") as file:
        for number in range(mebibytes):
            file.write(number.to_bytes(8, "big") + block[8:])
    (folder / f"{name}.onnx").write_bytes(made.SerializeToString())
