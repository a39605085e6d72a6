"""The real Argo CD as processes of this machine: the application controller, the repo server and its Redis.

They are what its core install has. What is left out: the API server with its page, and single sign-on.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from bench.proc import end
from dev.packages import ensure_packages
from dev.tools import ensure, share
from tests.cluster.client import Client, Raw
from tests.cluster.operators import until
from tests.loopback import free_ports
from tests.pages import manifests

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAMESPACE = "argocd"
_APPLICATIONS = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/applications"
_HERE = "127.0.0.1"
# Of the log of a part that does not do what is waited for.
_TOLD_CHARACTERS = 3000


@dataclass(frozen=True)
class ArgoCd:
    """Where it runs; `applications` are what it syncs."""

    client: Client
    kubeconfig: Path
    folder: Path
    stack: ExitStack

    def sync(self, name: str, url: str, *, namespace: str, helm: Raw | None = None) -> None:
        """Have the Application that the page has by this name, for a repository and a namespace; `helm` is added to its source."""
        (body,) = (one for _, one in manifests() if one["kind"] == "Application" and one["metadata"]["name"] == name)
        source = body["spec"]["source"]
        source["repoURL"] = url
        if helm is not None:
            source["helm"] |= helm
        body["spec"]["destination"]["namespace"] = namespace
        answer = self.client.apply(f"{_APPLICATIONS}/{name}", body, manager="somebody", force=True)
        assert answer.ok, answer.message

    def application(self, name: str) -> Raw:
        return self.client.get(f"{_APPLICATIONS}/{name}")

    def delete(self, name: str) -> None:
        """Delete an Application with what it has installed, as `argocd app delete` does, and wait until it is gone."""
        finalizers = ["resources-finalizer.argocd.argoproj.io"]
        self.client.merge(f"{_APPLICATIONS}/{name}", {"metadata": {"finalizers": finalizers}})
        assert self.client.delete(f"{_APPLICATIONS}/{name}").ok
        until(lambda: self.client.call("GET", f"{_APPLICATIONS}/{name}").code == 404, f"the end of {name}", seconds=60)

    def refresh(self, name: str) -> None:
        """Have it look at Git now, as a webhook does."""
        body = {"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}}
        self.client.merge(f"{_APPLICATIONS}/{name}", body)

    def wait(
        self, name: str, *, sync: str = "Synced", health: str | None = "Healthy", revision: str | None = None, seconds: float = 60
    ) -> Raw:
        """The Application, once it stands so and nothing is under way."""

        def there() -> Raw | None:
            found = self.application(name)
            status = found.get("status", {})
            stands = (
                status.get("sync", {}).get("status") == sync
                and health in {None, status.get("health", {}).get("status")}
                and revision in {None, status.get("sync", {}).get("revision")}
                and status.get("operationState", {}).get("phase") != "Running"
                and "argocd.argoproj.io/refresh" not in found["metadata"].get("annotations", {})
            )
            return found if stands else None

        try:
            found: Raw = until(there, f"{name}: {sync} and {health}", seconds=seconds)
        except TimeoutError as error:
            error.add_note(yaml.safe_dump(self.application(name).get("status")))
            error.add_note(self.log("application-controller")[-_TOLD_CHARACTERS:])
            raise
        return found

    def resources(self, name: str) -> dict[tuple[str, str], Raw]:
        """What the Application says of each of its objects, by kind and name."""
        return {(one["kind"], one["name"]): one for one in self.application(name)["status"].get("resources", ())}

    def health(self, name: str, kind: str, of: str) -> str:
        """The health of one object as the Application has it; empty while it has none."""
        return str(self.resources(name).get((kind, of), {}).get("health", {}).get("status", ""))

    def log(self, part: str) -> str:
        return (self.folder / f"{part}.log").read_text()

    def start(self) -> None:
        ensure_packages(("redis-server",))
        redis, repo, *metrics = free_ports(4)
        self._run("redis", ["redis-server", "--save", "", "--appendonly", "no", "--bind", _HERE, "--port", str(redis)])
        quiet = [f"--redis={_HERE}:{redis}", "--logformat=text", "--loglevel=info"]
        ports = [f"--port={repo}", f"--address={_HERE}", f"--metrics-port={metrics[0]}"]
        self._part("repo-server", ["--disable-tls", *ports, *quiet])
        access = [f"--kubeconfig={self.kubeconfig}", f"--namespace={NAMESPACE}"]
        server = [f"--repo-server={_HERE}:{repo}", "--repo-server-plaintext", f"--metrics-port={metrics[1]}"]
        # It looks at Git when it is told, by `refresh`, and writes the health of each object into the Application.
        looks = ["--app-resync=3600", "--status-processors=2", "--persist-resource-health"]
        self._part("application-controller", [*access, *server, *quiet, *looks])

    def _part(self, name: str, arguments: Sequence[str]) -> None:
        program = ensure("argocd") / "argocd"
        environment = {
            "ARGOCD_BINARY_NAME": f"argocd-{name}",
            # The server of this name is that of the kubeconfig.
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            "HOSTNAME": "argocd-0",
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{ensure('helm')}:{os.environ['PATH']}",
            "TMPDIR": str(self.folder),
            **{f"ARGOCD_{what}_DATA_PATH": str(self.folder / what) for what in ("TLS", "SSH", "GPG")},
            **{f"HELM_{what}_HOME": str(self.folder / "helm") for what in ("CACHE", "CONFIG", "DATA")},
        }
        self._run(name, [str(program), *arguments], environment)

    def _run(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        with (self.folder / f"{name}.log").open("wb") as out:
            process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdout=out, stderr=out, cwd=self.folder)
        self.stack.callback(end, process)


@contextmanager
def argo_cd(kubeconfig: Path, folder: Path, settings: Mapping[str, str]) -> Iterator[ArgoCd]:
    """Argo CD of its own install's settings, with these added to `argocd-cm`; what it leaves in the cluster stays."""
    client = Client(kubeconfig)
    client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for path in sorted(share("argocd", "crds").glob("*-crd.yaml")):
        body = yaml.safe_load(path.read_text())
        place = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        _must(client, f"{place}/{body['metadata']['name']}", body)
    for path in sorted(share("argocd", "config").glob("argocd-*.yaml")):
        body = yaml.safe_load(path.read_text())
        if body["metadata"]["name"] == "argocd-cm":
            body["data"] |= settings
        if body["metadata"]["name"] == "argocd-secret":
            # Argo CD's API server would draw it.
            body["stringData"] = {"server.secretkey": secrets.token_urlsafe(32)}
        _must(client, f"/api/v1/namespaces/{NAMESPACE}/{body['kind'].lower()}s/{body['metadata']['name']}", body)
    project = f"/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}/appprojects"
    until(lambda: client.call("GET", project).ok and client.call("GET", _APPLICATIONS).ok, "Argo CD's kinds")
    # And make this.
    everything = {
        "sourceRepos": ["*"],
        "destinations": [{"namespace": "*", "server": "*"}],
        "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
    }
    _must(
        client,
        f"{project}/default",
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": {"name": "default"}, "spec": everything},
    )
    with ExitStack() as stack:
        made = ArgoCd(client, kubeconfig, folder, stack)
        made.start()
        yield made


def _must(client: Client, path: str, body: Raw) -> None:
    answer = client.apply(path, body, manager="somebody", force=True)
    assert answer.ok, answer.message
