"""What else moves replicas, as shipped, beside the local cluster: Prometheus, KEDA, the Prometheus adapter, metrics-server.

They run as processes of this machine with the administrator's kubeconfig, as the control plane does. The API server reaches those
that serve an API by a Service whose only endpoint is the control plane's own address.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from bench.proc import end
from dev.cluster import default_layout
from dev.cluster.layout import CONTROL_ADDRESS
from dev.cluster.pki import Identity, encoded, make_identity
from dev.packages import ensure_packages
from dev.tools import ensure, share
from examples.demo.cluster import RELEASE, SYSTEM, Kubectl, Manifest, wait_for

NAMESPACE = "others"
_HERE = "127.0.0.1"
_PROMETHEUS, _KEDA_METRICS, _KEDA_HEALTH, _KEDA_ADAPTER_METRICS = 17490, 17491, 17492, 17493
PROMETHEUS_URL = f"http://{_HERE}:{_PROMETHEUS}"
# Of the log of a program that does not come up.
_TOLD_CHARACTERS = 3000


@dataclass(frozen=True, slots=True)
class _Api:
    """An aggregated API: its Service, the port on this machine, and the versions of the group that it serves."""

    service: str
    port: int
    group: str
    versions: tuple[str, ...]


_EXTERNAL = _Api("keda-metrics-apiserver", 17501, "external.metrics.k8s.io", ("v1beta1",))
_CUSTOM = _Api("prometheus-adapter", 17502, "custom.metrics.k8s.io", ("v1beta1", "v1beta2"))
_RESOURCE = _Api("metrics-server", 17503, "metrics.k8s.io", ("v1beta1",))


@dataclass(frozen=True, slots=True)
class Others:
    """Where they run; what was started ends with the block of `others`."""

    kube: Kubectl
    folder: Path
    stack: ExitStack

    def prometheus(self, *, scrape_seconds: int) -> None:
        """It scrapes the operator. Returns when it has a series of it."""
        ensure_packages(("prometheus",))
        self.find_operator()
        config = self.folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(_scraping(self._targets, scrape_seconds)))
        data = self.folder / "prometheus"
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}"]
        self._run("prometheus", [*command, f"--web.listen-address={_HERE}:{_PROMETHEUS}"])
        wait_for(lambda: "inference_operator" in _fetched(f"{PROMETHEUS_URL}/api/v1/label/__name__/values"), "Prometheus's series")

    def find_operator(self) -> None:
        """Have Prometheus scrape the operator's pods of now: series of jobs are the leader's alone, so a Service would mix them.

        Debian's Prometheus lacks the discovery of pods that one would use.
        """
        selector = f"app.kubernetes.io/name={RELEASE}"
        pods = json.loads(replace(self.kube, namespace=SYSTEM).run("get", "pods", "-l", selector, "-o", "json"))["items"]
        addresses = [f"{pod['status']['podIP']}:8080" for pod in pods if pod["status"].get("podIP")]
        self._targets.write_text(json.dumps([{"targets": addresses}]))

    @property
    def _targets(self) -> Path:
        return self.folder / "targets.json"

    def keda(self) -> None:
        """Its operator and its adapter, and external.metrics.k8s.io."""
        files = [part for path in sorted(share("keda", "crds").glob("*.yaml")) for part in ("-f", str(path))]
        self.kube.run("apply", "--server-side", *files)
        self.kube.run("wait", "--for=condition=Established", *files)
        certificates = self._certificates(_EXTERNAL)
        environment = {"WATCH_NAMESPACE": "", "POD_NAMESPACE": NAMESPACE, "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE}
        operator = [
            *(f"--cert-dir={certificates}", "--enable-prometheus-metrics=false", "--zap-log-level=error"),
            *(f"--health-probe-bind-address={_HERE}:{_KEDA_HEALTH}", f"--metrics-service-bind-address={_HERE}:{_KEDA_METRICS}"),
        ]
        self._run("keda-operator", [str(ensure("keda") / "operator"), *operator], environment)
        wait_for(lambda: _fetched(f"http://{_HERE}:{_KEDA_HEALTH}/readyz") == "ok", "KEDA's operator")
        adapter = [
            *self._serving(_EXTERNAL, certificates),
            *(f"--metrics-service-address={_HERE}:{_KEDA_METRICS}", f"--port={_KEDA_ADAPTER_METRICS}", "--zap-log-level=error"),
            f"--lister-kubeconfig={self.kube.kubeconfig}",
        ]
        self._run("keda-adapter", [str(ensure("keda") / "adapter"), *adapter], environment)
        self._register(_EXTERNAL, "keda-adapter")

    def prometheus_adapter(self, rules: Manifest) -> None:
        """It serves custom.metrics.k8s.io, which the operator must not."""
        self.find_operator()
        config = self.folder / "adapter.yaml"
        config.write_text(yaml.safe_dump(rules))
        command = [
            str(ensure("prometheus-adapter") / "prometheus-adapter"),
            *self._serving(_CUSTOM, self._certificates(_CUSTOM)),
            *(f"--lister-kubeconfig={self.kube.kubeconfig}", f"--prometheus-url={PROMETHEUS_URL}", f"--config={config}"),
            *("--metrics-relist-interval=5s", "--v=1"),
        ]
        self._run("prometheus-adapter", command)
        self._register(_CUSTOM, "prometheus-adapter")

    def metrics_server(self) -> None:
        """CPU of pods, at the finest resolution that it has (ten seconds)."""
        pki = default_layout().pki
        client = pki / "apiserver-kubelet-client"
        command = [
            str(ensure("metrics-server") / "metrics-server"),
            *self._serving(_RESOURCE, self._certificates(_RESOURCE)),
            # It ends at once when a kubelet may take longer than nine tenths of the resolution; its default is ten seconds.
            *(f"--kubeconfig={self.kube.kubeconfig}", "--metric-resolution=10s", "--kubelet-request-timeout=8s"),
            "--kubelet-use-node-status-port",
            *("--kubelet-preferred-address-types=InternalIP", f"--kubelet-certificate-authority={pki / 'ca.crt'}"),
            *(f"--kubelet-client-certificate={client}.crt", f"--kubelet-client-key={client}.key"),
        ]
        self._run("metrics-server", command)
        self._register(_RESOURCE, "metrics-server")

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _run(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        log = self._log(name)
        given = {**os.environ, "KUBECONFIG": str(self.kube.kubeconfig), **(environment or {})}
        with log.open("wb") as out:
            process = subprocess.Popen(command, env=given, stdout=out, stderr=out, cwd=self.folder)
        self.stack.callback(end, process)

    def _serving(self, api: _Api, certificates: Path) -> tuple[str, ...]:
        return (
            *(f"--bind-address={CONTROL_ADDRESS}", f"--secure-port={api.port}", f"--cert-dir={certificates}"),
            *(f"--tls-cert-file={certificates / 'tls.crt'}", f"--tls-private-key-file={certificates / 'tls.key'}"),
            *(f"--authentication-kubeconfig={self.kube.kubeconfig}", f"--authorization-kubeconfig={self.kube.kubeconfig}"),
        )

    def _certificates(self, api: _Api) -> Path:
        """As KEDA wants them: it also speaks to itself, both sides with this one."""
        pki, folder = default_layout().pki, self.folder / f"{api.service}-certificates"
        folder.mkdir()
        names = (f"DNS:{api.service}.{NAMESPACE}.svc", f"IP:{_HERE}")
        make_identity(pki, Identity(api.service, api.service, usage="serverAuth,clientAuth", alternative_names=names))
        for name, source in (("ca.crt", "ca.crt"), ("tls.crt", f"{api.service}.crt"), ("tls.key", f"{api.service}.key")):
            (folder / name).write_bytes((pki / source).read_bytes())
        return folder

    def _register(self, api: _Api, program: str) -> None:
        replace(self.kube, namespace=NAMESPACE).apply(*_objects(api, encoded(default_layout().pki / "ca.crt")))
        for version in api.versions:
            self.stack.callback(self.kube.delete, "apiservice", f"{version}.{api.group}")
            try:
                self.kube.run("wait", "apiservice", f"{version}.{api.group}", "--for=condition=Available", "--timeout=60s")
            except RuntimeError as error:
                error.add_note(f"{program}'s log ends:\n{self._log(program).read_text()[-_TOLD_CHARACTERS:]}")
                raise


@contextmanager
def others(kube: Kubectl, folder: Path) -> Iterator[Others]:
    """None of them yet. What they leave in the cluster besides an APIService goes with the cluster."""
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    with ExitStack() as stack:
        yield Others(kube, folder, stack)


def _objects(api: _Api, authority: str) -> Iterator[Manifest]:
    place = {"name": api.service, "namespace": NAMESPACE}
    ports = [{"name": "https", "port": 443, "targetPort": api.port}]
    yield {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": {"ports": ports}}
    yield {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**place, "labels": {"kubernetes.io/service-name": api.service}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [CONTROL_ADDRESS], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": api.port, "protocol": "TCP"}],
    }
    for priority, version in enumerate(api.versions, start=1):
        yield {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{api.group}"},
            "spec": {
                "group": api.group,
                "version": version,
                "service": {**place, "port": 443},
                "caBundle": authority,
                "groupPriorityMinimum": 100,
                "versionPriority": 100 * priority,
            },
        }


def _scraping(targets: Path, seconds: int) -> Manifest:
    job = {"job_name": RELEASE, "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "5s"}]}
    return {"global": {"scrape_interval": f"{seconds}s"}, "scrape_configs": [job]}


def _fetched(url: str) -> str:
    """The answer's text; empty while nobody answers."""
    try:
        with urlopen(url, timeout=2) as answer:
            text: str = answer.read().decode()
            return text
    except (URLError, OSError):
        return ""
