"""`python3 -m dev.kind up|down|kubeconfig`: a cluster of kind with this checkout's images, where Docker is.

It stands in for the local cluster: its node has the devices of one as plain numbers, and the volume of the examples is a folder of
this machine. It takes Linux and root, so that this machine reaches Services by their addresses. KIND_IMAGE names the node's image.
"""

import argparse
import json
import os
import shutil
import subprocess
from pathlib import Path

import yaml

from dev.cache import cache_root
from dev.console import DevError, heartbeat, run_main
from dev.images.buildah import Buildah
from dev.images.project import build, recipes
from dev.packages import IMAGE_PACKAGES, ensure_packages
from dev.tools import ensure, kubectl

NAME = "inference-operator"
FOLDER = cache_root() / "kind"
KUBECONFIG = FOLDER / "kubeconfig"
# The node sees it by the same path, so the path in a PersistentVolume is good on both sides.
VOLUME = FOLDER / "volume"
SERVICES = "10.96.0.0/16"
_NODE = f"{NAME}-control-plane"
_CREATE_SECONDS = 180
_DEVICES = 4


def cluster_config() -> str:
    """Return what kind makes: one node, with the folder of the volume mounted."""
    mount = {"hostPath": str(VOLUME), "containerPath": str(VOLUME)}
    nodes = [{"role": "control-plane", "extraMounts": [mount]}]
    config = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": nodes, "networking": {"serviceSubnet": SERVICES}}
    text: str = yaml.safe_dump(config)
    return text


def volume() -> dict[str, object]:
    """Return the PersistentVolume that waits for the claim of the examples."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "inference-examples"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "standard",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "demo", "name": "data"},
            "hostPath": {"path": str(VOLUME), "type": "Directory"},
        },
    }


def up() -> None:
    """Create the cluster unless it is there, and bring it images, volume and devices."""
    docker = _docker()
    kind = [shutil.which("kind") or str(ensure("kind") / "kind")]
    if NAME not in _run([*kind, "get", "clusters"]).split():
        VOLUME.mkdir(parents=True, exist_ok=True)
        image = ["--image", os.environ["KIND_IMAGE"]] if "KIND_IMAGE" in os.environ else []
        create = [*kind, "create", "cluster", "--name", NAME, "--kubeconfig", str(KUBECONFIG), "--config", "-", *image]
        with heartbeat("kind"):
            _run([*create, "--wait", f"{_CREATE_SECONDS}s"], stdin=cluster_config())
    # Debian's tools build what a Docker without a registry can't.
    ensure_packages(IMAGE_PACKAGES)
    buildah = Buildah()
    for recipe in recipes():
        _run([*kind, "load", "image-archive", str(build(recipe, buildah).archive), "--name", NAME])
    on_kind = [kubectl(), "--kubeconfig", str(KUBECONFIG)]
    _run([*on_kind, "apply", "--server-side", "--force-conflicts", "-f", "-"], stdin=json.dumps(volume()))
    capacity = json.dumps({"status": {"capacity": {"nvidia.com/gpu": str(_DEVICES)}}})
    _run([*on_kind, "patch", "node", _NODE, "--subresource=status", "--type=merge", "-p", capacity])
    inspect = [docker, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", _NODE]
    _run(["ip", "route", "replace", SERVICES, "via", _run(inspect).strip()])
    print(f"export KUBECONFIG={KUBECONFIG}")


def down() -> None:
    """Delete the cluster, and the way to its Services."""
    _docker()
    _run([shutil.which("kind") or str(ensure("kind") / "kind"), "delete", "cluster", "--name", NAME])
    subprocess.run(["ip", "route", "del", SERVICES], capture_output=True, check=False)
    shutil.rmtree(FOLDER, ignore_errors=True)


def _docker() -> str:
    """Return the client of a Docker that answers."""
    instead = "or run `make demo` for the local cluster, which needs no Docker"
    found = shutil.which("docker")
    if found is None:
        raise DevError(f"kind needs Docker, and there is no docker: install it, {instead}")
    asked = subprocess.run([found, "version", "--format", "{{.Server.Version}}"], capture_output=True, text=True, check=False)
    if asked.returncode:
        raise DevError(f"kind needs Docker, and its daemon doesn't answer: start it, {instead}\n{asked.stderr.strip()}")
    return found


def _run(command: list[str], *, stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DevError(f"{Path(command[0]).name} {' '.join(command[1:4])} failed:\n{done.stderr.strip()}")
    return done.stdout


def main() -> int:
    """Do what is asked."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.kind", description=__doc__)
    parser.add_argument("action", choices=["up", "down", "kubeconfig"])
    match parser.parse_args().action:
        case "up":
            up()
        case "down":
            down()
        case _:
            print(KUBECONFIG)
    return 0


if __name__ == "__main__":
    run_main(main)
