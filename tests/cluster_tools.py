"""Stand-ins for kubectl and Helm: they write down what they are asked, and answer as if the operator were installed."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dev.tools import TOOL_SETS

NAMESPACE, NAME = "inference-system", "inference-operator"
_KUBECTL = """#!/bin/sh
echo "kubectl $*" >> {folder}/journal
case "$*" in
  *"config view"*) cat {folder}/view.json ;;
  *"get deployment"*) cat {folder}/deployment.json ;;
  *"get configmap"*) cat {folder}/configmap.yaml ;;
  *"create token"*) echo account-token ;;
esac
"""
_HELM = """#!/bin/sh
echo "helm $*" >> {folder}/journal
case "$*" in
  *status*) cat {folder}/status.json ;;
  *upgrade*) [ ! -e {folder}/upgrade-fails ] || {{ echo "no upgrade today" >&2; exit 1; }} ;;
esac
"""


@dataclass(frozen=True)
class ClusterTools:
    """The two programs, and the cluster that they tell of."""

    folder: Path
    kubeconfig: Path
    state: Path

    def variables(self) -> dict[str, str]:
        """What makes `dev` take these programs, and this kubeconfig."""
        path = os.pathsep.join((str(self.folder / "bin"), os.environ["PATH"]))
        return {
            "PATH": path,
            "KUBECONFIG": str(self.kubeconfig),
            "INFERENCE_OPERATOR_CACHE": str(self.folder / "cache"),
            "INFERENCE_DEV_STATE": str(self.state),
        }

    @property
    def journal(self) -> list[str]:
        """What the programs were asked, without the kubeconfig."""
        file = self.folder / "journal"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.replace(f" --kubeconfig {self.kubeconfig}", "") for line in lines]

    def fail_upgrades(self) -> None:
        (self.folder / "upgrade-fails").touch()


def make(folder: Path, *, server: str = "http://127.0.0.1:1", settings: dict[str, Any] | None = None) -> ClusterTools:
    """Programs in `folder`, with a release whose settings are these beside what the chart always gives."""
    helm = folder / "cache" / "tools" / f"helm-{TOOL_SETS['helm'].key()}" / "bin" / "helm"
    for program, text in ((folder / "bin" / "kubectl", _KUBECTL), (helm, _HELM)):
        program.parent.mkdir(parents=True)
        program.write_text(text.format(folder=folder))
        program.chmod(0o755)
    view = {
        "current-context": "theirs",
        "contexts": [{"name": "theirs", "context": {"cluster": "c", "user": "admin"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "admin", "user": {"token": "admin-token"}}],
    }
    template = {"spec": {"serviceAccountName": "an-account"}}
    deployment = {"replicas": 2, "template": template, "selector": {"matchLabels": {"b": "2", "a": "1"}}}
    written = {
        "customMetrics": {"enabled": False, "port": 8443},
        "kedaScaler": {"enabled": False, "port": 6000},
        "policy": {"path": "/etc/inference-operator-policy/policy.onnx"},
        "workerImage": "worker:1",
        **(settings or {}),
    }
    config_map = {"kind": "ConfigMap", "data": {"config.yaml": yaml.safe_dump(written)}}
    (folder / "view.json").write_text(json.dumps(view))
    (folder / "deployment.json").write_text(json.dumps({"spec": deployment}))
    (folder / "configmap.yaml").write_text(yaml.safe_dump(config_map))
    (folder / "status.json").write_text(json.dumps({"name": NAME, "version": 7}))
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(view))
    return ClusterTools(folder, kubeconfig, folder / "state")
