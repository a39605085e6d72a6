"""`python -m dev.run`: run the operator of this checkout outside the cluster, in the place of the one installed there by Helm.

The cluster is that of KUBECONFIG, or else the local one. The release is upgraded to this checkout's chart without replicas, and
rolled back at the end: so CRDs, rights and settings fit the code, and no deployed operator is there to disagree. The operator gets
a token of its ServiceAccount, so that a right that the chart lacks is missed here too. The Lease stays the same: should anything
start another operator meanwhile, only one of the two leads.

What is not as in the cluster: Services do not reach this process, so HPAs and KEDA hold still until the deployed operator is back.
And the operator asks workers by their pods' addresses, which can be reached on the local cluster and seldom on others.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dev.cluster import default_layout
from dev.console import DevError, run_main, say
from dev.tools import ensure, kubectl

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "inference-operator"
DEBUG_ADDRESS = "127.0.0.1:5678"
# The API server may give less; the operator ends its work, and not itself, when the token does.
_TOKEN_DURATION = "12h"

Raw = dict[str, Any]


@dataclass(frozen=True)
class Release:
    """An installed operator. Its Deployment, its pods' selector and its ConfigMap are named as the chart names them."""

    namespace: str
    name: str
    revision: int
    account: str
    replicas: int
    selector: str


@dataclass(frozen=True)
class Target:
    """A cluster, by the current context of a kubeconfig."""

    kubeconfig: Path
    context: str
    server: str
    local: bool

    def kubectl(self, *arguments: str) -> str:
        """What kubectl says. Raises DevError with its own words."""
        return _output(kubectl(), "--kubeconfig", str(self.kubeconfig), *arguments)

    def helm(self, *arguments: str) -> str:
        """What Helm says. Raises DevError with its own words."""
        return _output(str(ensure("helm") / "helm"), "--kubeconfig", str(self.kubeconfig), *arguments)


def target(environment: Mapping[str, str]) -> Target:
    """The cluster to run against. Raises DevError when there is none."""
    of_local = default_layout().kubeconfig
    chosen = environment.get("KUBECONFIG") or str(of_local)
    if os.pathsep in chosen:
        raise DevError("KUBECONFIG names several files; name the one to use")
    path = Path(chosen)
    if not path.exists():
        raise DevError(f"there is no kubeconfig at {path}: set KUBECONFIG, or start the local cluster by `make cluster`")
    text = _output(kubectl(), "--kubeconfig", str(path), "config", "view", "--minify", "-o", "json")
    document = json.loads(text)
    server = document["clusters"][0]["cluster"]["server"]
    local = of_local.exists() and path.resolve() == of_local.resolve()
    return Target(path, document["current-context"], server, local)


def release(where: Target, namespace: str, name: str) -> Release:
    """The installed operator. Raises DevError when there is none."""
    try:
        status = json.loads(where.helm("status", name, "-n", namespace, "-o", "json"))
        found = json.loads(where.kubectl("get", "deployment", name, "-n", namespace, "-o", "json"))["spec"]
    except DevError as error:
        raise DevError(
            f"{where.context} has no release {namespace}/{name} to take the place of ({error}): "
            "install the chart (README.md), or run `make demo` on the local cluster"
        ) from error
    selector = ",".join(f"{key}={value}" for key, value in sorted(found["selector"]["matchLabels"].items()))
    account = found["template"]["spec"].get("serviceAccountName", "default")
    return Release(namespace, name, status["version"], account, found["replicas"], selector)


def settings(config_map: str, *, port: int) -> Raw:
    """The operator's settings out of the release's ConfigMap, changed where outside of a pod something else holds."""
    found: Raw = yaml.safe_load(yaml.safe_load(config_map)["data"]["config.yaml"])
    found["httpPort"] = port
    # Nothing of the cluster reaches these ports here, so any free one will do. Turned off, HPAs would be taken away.
    for served in ("customMetrics", "kedaScaler", "gateway"):
        found[served] = {**found.get(served, {}), "port": 0}
    if "endpointPicker" in found["gateway"]:
        found["gateway"]["endpointPicker"] = {**found["gateway"]["endpointPicker"], "port": 0}
    # A breakpoint stops the renewals too, and nobody waits to lead.
    found["leaseSeconds"] = 15
    # It would be mounted into the pod.
    found["policy"] = {"path": ""}
    return found


def kubeconfig(document: Raw, token: str) -> Raw:
    """The same cluster for whoever has the token. `document` is of `kubectl config view --minify --flatten --raw`."""
    (cluster,) = document["clusters"]
    context = {"cluster": cluster["name"], "user": "operator"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "operator",
        "contexts": [{"name": "operator", "context": context}],
        "clusters": [cluster],
        "users": [{"name": "operator", "user": {"token": token}}],
    }


def command(*, debug: bool, has_debugpy: bool) -> list[str]:
    """How the operator is started: alone, under debugpy, or under pdb where debugpy is not installed."""
    module = ["-m", "inference_operator"]
    if not debug:
        return [sys.executable, *module]
    if has_debugpy:
        return [sys.executable, "-m", "debugpy", "--listen", DEBUG_ADDRESS, "--wait-for-client", *module]
    return [sys.executable, "-m", "pdb", *module]


def environment(inherited: Mapping[str, str], *, kubeconfig_path: Path, config: Path, namespace: str) -> dict[str, str]:
    """The operator's environment. In a pod of another cluster it must not take that pod's account."""
    kept = {name: value for name, value in inherited.items() if not name.startswith("KUBERNETES_")}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("operator", "protocol")),
        "KUBECONFIG": str(kubeconfig_path),
        "INFERENCE_OPERATOR_CONFIG": str(config),
        "POD_NAMESPACE": namespace,
    }


def agree(where: Target, found: Release, *, yes: bool) -> None:
    """Say what will happen, and ask where the cluster is not the local one. Raises DevError without a yes."""
    say(f"cluster   {where.context} at {where.server}{' (local)' if where.local else ''}")
    say(f"release   {found.namespace}/{found.name}, revision {found.revision} with {found.replicas} replicas: upgraded to this")
    say("          checkout's chart without replicas, CRDs included, and rolled back when this ends")
    say(f"          should this be killed: {rollback(found)}")
    if found.replicas == 0:
        say("          it has no replicas: was another run killed? Then roll back to the revision before it first")
    if where.local or yes:
        return
    if not sys.stdin.isatty() or input(f"Type the context's name, {where.context}, to go on: ").strip() != where.context:
        raise DevError("nothing was changed")


def rollback(found: Release) -> str:
    """The command that brings the deployed operator back."""
    return f"helm rollback {found.name} {found.revision} -n {found.namespace}"


@contextmanager
def replaced(where: Target, found: Release, *, worker_image: str) -> Iterator[None]:
    """This checkout's chart without an operator, and afterwards what was there before, whatever happens."""
    of_release = (found.name, "-n", found.namespace)
    try:
        # The values that the release was given stay; those of the chart are this checkout's.
        # Whoever has scaled the operator by kubectl owns the number since; for now, and then for good, it is the chart's.
        values = ("--reset-then-reuse-values", "--set", "replicaCount=0", "--force-conflicts")
        # The chart's admission policies let in workers of its own image alone.
        image = ("--set", f"settings.workerImage={worker_image}") if worker_image else ()
        where.helm("upgrade", *of_release, *values, *image, "--timeout", "60s", str(CHART))
        # It gives its Lease back, so that ours need not wait for it to expire.
        where.kubectl("wait", "pod", "-n", found.namespace, "-l", found.selector, "--for=delete", "--timeout=60s")
        yield
    finally:
        where.helm("rollback", found.name, str(found.revision), "-n", found.namespace, "--force-conflicts")
        say(f"release {found.namespace}/{found.name} is as it was, with {found.replicas} replicas")


def run(where: Target, found: Release, *, debug: bool, port: int, worker_image: str) -> int:
    """Run the operator in the place of the deployed one; its exit code."""
    has_debugpy = importlib.util.find_spec("debugpy") is not None
    cluster = json.loads(where.kubectl("config", "view", "--minify", "--flatten", "--raw", "-o", "json"))
    with tempfile.TemporaryDirectory(prefix="inference-operator-") as name, replaced(where, found, worker_image=worker_image):
        config_map = where.kubectl("get", "configmap", found.name, "-n", found.namespace, "-o", "yaml")
        token = where.kubectl("create", "token", found.account, "-n", found.namespace, f"--duration={_TOKEN_DURATION}").strip()
        config, access = Path(name) / "config.yaml", Path(name) / "kubeconfig"
        config.write_text(yaml.safe_dump(settings(config_map, port=port)))
        access.write_text(json.dumps(kubeconfig(cluster, token)))
        variables = environment(os.environ, kubeconfig_path=access, config=config, namespace=found.namespace)
        say(f"health    http://127.0.0.1:{port}/readyz, /healthz, /metrics")
        if debug:
            say(f"debugger  debugpy waits at {DEBUG_ADDRESS}" if has_debugpy else "debugger  pdb, since debugpy is not installed")
        return _wait(subprocess.Popen(command(debug=debug, has_debugpy=has_debugpy), env=variables, cwd=ROOT))


def _wait(process: subprocess.Popen[bytes]) -> int:
    """The exit code. Signals are the operator's, which gives its Lease back; then the deployed one comes back."""
    passed_on = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: process.terminate()) for number in passed_on}
    # A terminal gives Ctrl-C to both.
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _output(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DevError(f"{Path(words[0]).name} {' '.join(words[1:])}: {done.stderr.strip()}")
    return done.stdout


def main() -> int:
    """Run until told to stop; the operator's exit code."""
    parser = argparse.ArgumentParser(prog="python -m dev.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--debug", action="store_true", help="under debugpy, or pdb where it is not installed")
    parser.add_argument("--port", type=int, default=8080, help="of /healthz, /readyz and /metrics")
    parser.add_argument("--worker-image", default="", metavar="IMAGE", help="for new workers; the release's own without it")
    parser.add_argument("--namespace", default="inference-system", help="of the release")
    parser.add_argument("--release", default="inference-operator", help="its name, which its Deployment has too")
    parser.add_argument("--yes", action="store_true", help="do not ask, whatever cluster it is")
    arguments = parser.parse_args()
    where = target(os.environ)
    found = release(where, arguments.namespace, arguments.release)
    agree(where, found, yes=arguments.yes)
    return run(where, found, debug=arguments.debug, port=arguments.port, worker_image=arguments.worker_image)


if __name__ == "__main__":
    run_main(main)
