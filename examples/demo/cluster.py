"""What the demo asks of the local cluster, by the tools that a user has: kubectl and helm."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from dev import kind
from dev.cluster import default_layout
from dev.tools import bin_folder, ensure, kubectl

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "examples" / "manifests"
SYSTEM = "inference-system"
RELEASE = "inference-operator"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

Manifest = dict[str, Any]


def say(text: str) -> None:
    """Progress goes to stderr; stdout is for the result."""
    print(f"==> {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl on one cluster, in one namespace unless the object says otherwise."""

    kubeconfig: Path
    namespace: str = "demo"

    @property
    def on_kind(self) -> bool:
        """Whether it is the cluster of `make kind`, which has its images already and an end of its own."""
        return self.kubeconfig == kind.KUBECONFIG

    @property
    def ended_by(self) -> str:
        """The command that ends this cluster."""
        return "make kind-down" if self.on_kind else "make cluster-down"

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl; raise RuntimeError with its own words when it fails."""
        command = [kubectl(), "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: Manifest, server_side: bool = False) -> None:
        """Apply objects."""
        flags = ("--server-side",) if server_side else ()
        self.run("apply", *flags, "-f", "-", stdin=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str) -> Manifest:
        """One object."""
        found: Manifest = json.loads(self.run("get", kind, name, "-o", "json"))
        return found

    def wait(self, name: str, condition: str, *, seconds: int = 120) -> Manifest:
        """Wait for an InferenceJob's condition, as `Succeeded` or `Succeeded=False`; raise with its status if it never comes."""
        try:
            self.run("wait", f"--for=condition={condition}", f"inferencejob/{name}", f"--timeout={seconds}s")
        except RuntimeError as error:
            status = self.run("get", "inferencejob", name, "-o", "jsonpath={.status}", check=False)
            raise RuntimeError(f"{error}\n{status}") from error
        return self.get("inferencejob", name)

    def delete(self, *arguments: str) -> None:
        """Delete and wait until it is gone; what is not there is fine."""
        self.run("delete", "--ignore-not-found", *arguments)

    def create_namespace(self, *, level: str = "restricted") -> None:
        """Create this namespace under a level of pod security, with the claim of the examples."""
        namespace, claim = load("00-namespace.yaml", namespace=self.namespace)
        labels = {"pod-security.kubernetes.io/enforce": level}
        self.apply({**namespace, "metadata": {"name": self.namespace, "labels": labels}}, claim)

    def volume(self, claim: str) -> Path:
        """The folder behind a claim of the local cluster's storage class, once it is bound."""
        wait_for(lambda: self.get("pvc", claim)["status"].get("phase") == "Bound", f"claim {claim}")
        volume = self.get("pvc", claim)["spec"]["volumeName"]
        return Path(self.get("pv", volume)["spec"]["hostPath"]["path"])


def wait_for(condition: Callable[[], bool], what: str, *, seconds: float = 60) -> None:
    """Poll until it is so."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise RuntimeError(f"{what}: not after {seconds:.0f} s")
        time.sleep(0.1)


def local() -> Kubectl:
    """Kubectl on the local cluster. Raises RuntimeError where KUBECONFIG leads elsewhere: callers upgrade it and delete jobs."""
    made = default_layout().kubeconfig
    path = Path(os.environ.get("KUBECONFIG") or made)
    if path not in (made, kind.KUBECONFIG) and (server := server_of(path)) not in _LOOPBACK:
        raise RuntimeError(
            f"KUBECONFIG={path} leads to {server}, which is no cluster of this machine: this would install the operator there and "
            "delete InferenceJobs. Unset KUBECONFIG, or start a cluster by `make cluster`"
        )
    return Kubectl(path)


def server_of(kubeconfig: Path) -> str:
    """The host that a kubeconfig's current context leads to. Raises RuntimeError."""
    try:
        document = yaml.safe_load(kubeconfig.read_text())
        context = next(one["context"] for one in document["contexts"] if one["name"] == document["current-context"])
        cluster = next(one["cluster"] for one in document["clusters"] if one["name"] == context["cluster"])
        return urlsplit(str(cluster["server"])).hostname or ""
    except (OSError, yaml.YAMLError, LookupError, TypeError, StopIteration) as error:
        raise RuntimeError(f"{kubeconfig} is no kubeconfig with a current context") from error


def load(name: str, *, deadline_in: float | None = None, namespace: str | None = None) -> list[Manifest]:
    """The objects of an example file; `deadline_in` seconds from now in place of the far-off date that the file has."""
    objects: list[Manifest] = list(yaml.safe_load_all((MANIFESTS / name).read_text()))
    for one in objects:
        if deadline_in is not None:
            due = datetime.now(UTC) + timedelta(seconds=deadline_in)
            one["spec"]["deadline"] = due.strftime("%Y-%m-%dT%H:%M:%SZ")
        if namespace is not None:
            one["metadata"]["namespace"] = namespace
    return objects


def install(kube: Kubectl, images: Mapping[str, str], *, values: Sequence[Path] = (), settings: Sequence[str] = ()) -> None:
    """Install or upgrade the chart with these images, and wait for the operator."""
    ensure("helm")
    strict = {"pod-security.kubernetes.io/enforce": "restricted"}
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "labels": strict}}, server_side=True)
    operator, worker = (images[name].rsplit(":", 1)[1] for name in ("operator", "worker"))
    files = [str(path) for path in (ROOT / "examples" / "local-values.yaml", *values)]
    command = [
        str(bin_folder("helm") / "helm"),
        *("upgrade", "--install", RELEASE, str(ROOT / "charts" / "inference-operator")),
        *("--kubeconfig", str(kube.kubeconfig), "-n", SYSTEM),
        *(part for path in files for part in ("-f", path)),
        *("--set", f"image.tag={operator},worker.image.tag={worker}"),
        *_of_engines(images),
        *(part for setting in settings for part in ("--set", setting)),
        # Operators of earlier checkouts made the Secrets that are the chart's now.
        *("--take-ownership", "--force-conflicts", "--wait", "--timeout", "120s"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        logs = Kubectl(kube.kubeconfig, SYSTEM).run("logs", f"deploy/{RELEASE}", "--tail=20", check=False)
        raise RuntimeError(f"helm: {done.stderr.strip()}\n{logs}")


def _of_engines(images: Mapping[str, str]) -> Iterator[str]:
    if triton := images.get("triton"):
        yield from ("--set", f"backends.triton.image={triton},backends.triton.platform=python")
    if torchscript := images.get("torchscript"):
        yield from ("--set", f"backends.torchscript.image={torchscript}")


def build_images(*flags: str) -> dict[str, str]:
    """Build the images and bring them to the nodes; nothing happens when they are current."""
    done = subprocess.run([sys.executable, "-m", "dev.images", *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    names: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return names


def copy_tree(source: Path, target: Path) -> None:
    """Copy what workers read; readable for their user, and with a folder for what they write."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    out = target / "out"
    out.mkdir(exist_ok=True)
    out.chmod(0o777)
