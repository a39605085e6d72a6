"""`python3 -m dev.kustomize [-f VALUES]... [FOLDER]`: write bases for Kustomize from the chart, by default into config/.

`operator` has what the chart installs without its CRDs, `default` adds these and the namespace. Names and namespace are fixed: the
admission policies name the operator's account in expressions, which Kustomize doesn't rewrite.
"""

import argparse
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dev.console import DevError, run_main, say
from dev.tools import ensure

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "inference-operator"
FOLDER = ROOT / "config"
RELEASE, NAMESPACE = "inference-operator", "inference-system"
# The ConfigMap's name. In the chart it is the Lease's, too, and Kustomize would write the hash into the Role's rule for the Lease.
SETTINGS = f"{RELEASE}-settings"

Manifest = dict[str, Any]
_MADE = "# Written by `make kustomize` from the chart. Change it in an overlay of yours.\n"
_CHECKSUM = "checksum/config"


def files(values: Sequence[Path] = (), *, crds: str = "../../crds") -> dict[str, str]:
    """Return what the folder holds: a text for each path in it. `crds` is the way from `default` to the base of the CRDs."""
    settings = [part for path in values for part in ("-f", str(path))]
    objects = [_plain(one) for one in rendered("--set", "crds.enabled=false,test.enabled=false", *settings)]
    (config,) = (one for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == RELEASE)
    objects.remove(config)
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    (volume,) = (one for one in deployment["spec"]["template"]["spec"]["volumes"] if one["name"] == "config")
    volume["configMap"]["name"] = SETTINGS
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": level}}
    return {
        "operator/config.yaml": _MADE + config["data"]["config.yaml"],
        "operator/operator.yaml": _MADE + _dumped(*objects),
        "operator/kustomization.yaml": _MADE + _dumped(_operator(config)),
        "default/namespace.yaml": _MADE + _dumped(namespace),
        "default/kustomization.yaml": _MADE + _dumped(_kustomization(["namespace.yaml", crds, "../operator"])),
    }


def rendered(*arguments: str) -> list[Manifest]:
    """Return the chart's objects, as `helm install` makes them."""
    command = [str(ensure("helm") / "helm"), "template", RELEASE, str(CHART), "-n", NAMESPACE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DevError(f"helm template: {done.stderr.strip()}")
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def _plain(one: Manifest) -> Manifest:
    """Without what only Helm reads, and without the checksum that the ConfigMap's own name makes needless."""
    metadatas = [one["metadata"]]
    if one["kind"] == "Deployment":
        metadatas.append(one["spec"]["template"]["metadata"])
    for metadata in metadatas:
        for field in ("labels", "annotations"):
            kept = {key: value for key, value in metadata.pop(field, {}).items() if not _is_helms(key, value)}
            metadata.update({field: kept} if kept else {})
    return one


def _is_helms(key: str, value: str) -> bool:
    return key.startswith("helm.sh/") or (key, value) == ("app.kubernetes.io/managed-by", "Helm") or key == _CHECKSUM


def _operator(config: Manifest) -> Manifest:
    # The generated name ends in a hash of the settings: changed ones replace the operator's pods, which read them once.
    generated = {
        "name": SETTINGS,
        "namespace": NAMESPACE,
        "files": ["config.yaml"],
        "options": {"labels": config["metadata"]["labels"]},
    }
    return {**_kustomization(["operator.yaml"]), "configMapGenerator": [generated]}


def _kustomization(resources: list[str]) -> Manifest:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources}


def _dumped(*objects: Manifest) -> str:
    text: str = yaml.safe_dump_all(objects, sort_keys=False, width=130)
    return text


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the files."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> int:
    """Write the bases, and say where they are."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.kustomize", description=__doc__)
    parser.add_argument("-f", "--values", action="append", type=Path, default=[], metavar="VALUES", help="values of the chart")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, metavar="FOLDER")
    asked = parser.parse_args()
    folder: Path = asked.folder.resolve()
    write(folder, files(asked.values, crds=os.path.relpath(ROOT / "crds", folder / "default")))
    say(f"kubectl apply --server-side -k {folder / 'default'}")
    return 0


if __name__ == "__main__":
    run_main(main)
