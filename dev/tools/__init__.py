"""Build the Go programs of the local cluster into the cache; each set has its own go.mod here."""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from dev.cache import cache_root, digest, locked, published
from dev.console import DevError, heartbeat, say

HERE = Path(__file__).resolve().parent
KUBERNETES_VERSION = "v1.34.4"
_KUBERNETES_FLAGS = " ".join(
    [
        "-s -w",
        f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}",
        "-X k8s.io/component-base/version.gitMajor=1",
        "-X k8s.io/component-base/version.gitMinor=34",
        "-X k8s.io/component-base/version.gitTreeState=clean",
    ]
)

_KREW = "sigs.k8s.io/krew/cmd"
_ARGO_CD, _FLUX = "github.com/argoproj/argo-cd/v3", "github.com/fluxcd"


@dataclass(frozen=True, slots=True)
class ToolSet:
    """Programs that are built together because they share one module and most of their packages."""

    module: str
    programs: dict[str, str]
    ldflags: str = "-s -w"
    # Folders of modules that are kept beside the programs, for example CRDs: name -> (module, folder in it).
    shares: dict[str, tuple[str, str]] = field(default_factory=dict)
    # What of Go's own experiments the packages need.
    experiments: str = ""

    def key(self) -> str:
        """Return the hash that names a build: module files, sources of our own, programs and flags."""
        folder = HERE / self.module
        names = [f"{name}={package}" for name, package in sorted(self.programs.items())]
        shares = [f"{name}={module}/{path}" for name, (module, path) in sorted(self.shares.items())]
        texts = [self.ldflags, *names, *shares, *([self.experiments] if self.experiments else ())]
        files = [path.read_bytes() for path in (folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go")))]
        return digest([*files, *(text.encode() for text in texts)])


TOOL_SETS: dict[str, ToolSet] = {
    "kubernetes": ToolSet(
        module="kubernetes",
        programs={
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-proxy",
                "kube-scheduler",
                "kubelet",
            )
        },
        ldflags=_KUBERNETES_FLAGS,
    ),
    "kubectl": ToolSet(
        module="kubernetes",
        programs={"kubectl": "k8s.io/kubernetes/cmd/kubectl"},
        ldflags=_KUBERNETES_FLAGS,
    ),
    "etcd": ToolSet(module="etcd", programs={"etcd": "go.etcd.io/etcd/server/v3"}),
    "helm": ToolSet(module="helm", programs={"helm": "helm.sh/helm/v4/cmd/helm"}),
    "kind": ToolSet(module="kind", programs={"kind": "sigs.k8s.io/kind"}),
    "coredns": ToolSet(module="coredns", programs={"coredns": "github.com/coredns/coredns"}),
    "kueue": ToolSet(
        module="kueue",
        programs={"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
        shares={
            "crds": ("sigs.k8s.io/kueue", "config/components/crd/bases"),
            "webhooks": ("sigs.k8s.io/kueue", "config/components/webhook"),
        },
    ),
    # What makes nodes for pods that fit none; its kwok provider makes those that kwok's stages would play. Three to ten minutes.
    "karpenter": ToolSet(
        module="karpenter",
        programs={"karpenter": "sigs.k8s.io/karpenter/kwok"},
        shares={
            "crds": ("sigs.k8s.io/karpenter", "pkg/apis/crds"),
            "kwok-crds": ("sigs.k8s.io/karpenter", "kwok/apis/crds"),
        },
    ),
    # What else can move replicas, as peers in benchmarks.
    "keda": ToolSet(
        module="keda",
        programs={name: f"github.com/kedacore/keda/v2/cmd/{name}" for name in ("adapter", "operator")},
        shares={"crds": ("github.com/kedacore/keda/v2", "config/crd/bases")},
    ),
    "prometheus-adapter": ToolSet(
        module="prometheus-adapter", programs={"prometheus-adapter": "sigs.k8s.io/prometheus-adapter/cmd/adapter"}
    ),
    # What makes NetworkPolicies hold on the local cluster, which has no network that knows them.
    "kube-router": ToolSet(
        module="kube-router", programs={"kube-router": "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"}
    ),
    # Checks after Pod Security, CIS and the NSA's guide; the rules are in the program. Ten minutes on two cores.
    "trivy": ToolSet(module="trivy", programs={"trivy": "github.com/aquasecurity/trivy/cmd/trivy"}, experiments="jsonv2"),
    "kube-score": ToolSet(module="kube-score", programs={"kube-score": "github.com/zegl/kube-score/cmd/kube-score"}),
    # Where people have their models: servers of S3 and of Cloud Storage's API, and a registry, for the worker's tests.
    "rclone": ToolSet(module="rclone", programs={"rclone": "github.com/rclone/rclone"}),
    "fake-gcs-server": ToolSet(module="fake-gcs-server", programs={"fake-gcs-server": "github.com/fsouza/fake-gcs-server"}),
    "registry": ToolSet(module="registry", programs={"registry": "github.com/distribution/distribution/v3/cmd/registry"}),
    # By which a user of `make bench NAME=new_user` pushes to that registry.
    "oras": ToolSet(module="oras", programs={"oras": "oras.land/oras/cmd/oras"}),
    # Where traces go, for `make test-traces`. Ten minutes on two cores.
    "jaeger": ToolSet(module="jaeger", programs={"jaeger": "github.com/jaegertracing/jaeger/cmd/jaeger"}),
    # A gateway of somebody else. Ten minutes on two cores.
    "envoy-gateway": ToolSet(module="envoy-gateway", programs={"envoy-gateway": "github.com/envoyproxy/gateway/cmd/envoy-gateway"}),
    # What Flux, Helm and kpt take an object's status for: their library, behind a program of ours.
    "kstatus": ToolSet(module="kstatus", programs={"kstatus": "inference.myorg/dev/tools/kstatus"}),
    # All parts of Argo CD as one program: ARGOCD_BINARY_NAME says which it is. Ten minutes on two cores.
    "argocd": ToolSet(
        module="argocd",
        programs={"argocd": f"{_ARGO_CD}/cmd"},
        shares={"crds": (_ARGO_CD, "manifests/crds"), "config": (_ARGO_CD, "manifests/base/config")},
    ),
    "helm-controller": ToolSet(
        module="helm-controller",
        programs={"helm-controller": f"{_FLUX}/helm-controller"},
        shares={"crds": (f"{_FLUX}/helm-controller", "config/crd/bases")},
    ),
    # What installs kubectl's plug-ins, and judges their manifests. Later versions aren't tagged as Go modules are.
    "krew": ToolSet(module="krew", programs={name: f"{_KREW}/{name}" for name in ("krew", "validate-krew-manifest")}),
    # The CRDs alone of these.
    "source-controller": ToolSet(
        module="source-controller", programs={}, shares={"crds": (f"{_FLUX}/source-controller", "config/crd/bases")}
    ),
    "gateway-api": ToolSet(module="gateway-api", programs={}, shares={"crds": ("sigs.k8s.io/gateway-api", "config/crd/standard")}),
    "prometheus-operator": ToolSet(
        module="prometheus-operator",
        programs={},
        shares={"crds": ("github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd")},
    ),
    "metrics-server": ToolSet(
        module="metrics-server", programs={"metrics-server": "sigs.k8s.io/metrics-server/cmd/metrics-server"}
    ),
}


def bin_folder(name: str) -> Path:
    """Return where the set's programs are or will be."""
    return cache_root() / "tools" / f"{name}-{TOOL_SETS[name].key()}" / "bin"


def ensure(name: str) -> Path:
    """Build a set unless the cache has it; return the folder of its programs."""
    target = bin_folder(name)
    if target.is_dir():
        return target
    with locked(f"tools-{name}"):
        if not target.is_dir():
            _build(name, target)
    return target


def share(name: str, folder: str) -> Path:
    """Build a set unless the cache has it; return one of the folders that it keeps."""
    return ensure(name).parent / "share" / folder


def kubectl() -> str:
    """Return kubectl: the machine's own if there is one, else a built one."""
    found = shutil.which("kubectl")
    return found or str(ensure("kubectl") / "kubectl")


def _build(name: str, target: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise DevError("the Go toolchain (>= 1.24) is needed to build the cluster's programs")
    say(f"building {name}: {', '.join(TOOL_SETS[name].programs) or 'files alone'} (once; minutes on a small machine)")
    with published(target.parent) as scratch, heartbeat(f"the build of {name}"):
        _go_build(go, TOOL_SETS[name], scratch)
    say(f"built {name} in {target}")


def _go_build(go: str, tools: ToolSet, scratch: Path) -> None:
    bin_dir = scratch / "bin"
    bin_dir.mkdir()
    log = scratch / "build.log"
    # A program may be named otherwise than its package: etcd is built from .../server/v3.
    single = len(tools.programs) == 1
    output = str(bin_dir / next(iter(tools.programs))) if single else f"{bin_dir}/"
    build = [go, "build", "-trimpath", "-ldflags", tools.ldflags, "-o", output, *tools.programs.values()]
    command = build if tools.programs else [go, "mod", "download", *(module for module, _ in tools.shares.values())]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOEXPERIMENT": tools.experiments}
    with log.open("wb") as out:
        result = subprocess.run(
            ["nice", *command],
            cwd=HERE / tools.module,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if result.returncode != 0:
        tail = log.read_text(errors="replace").splitlines()[-20:]
        raise DevError("go build failed:\n" + "\n".join(tail))
    for kept, (module, path) in tools.shares.items():
        asked = [go, "list", "-m", "-f", "{{.Dir}}", module]
        found = subprocess.run(asked, cwd=HERE / tools.module, env=environment, capture_output=True, text=True, check=True)
        # The module cache is read-only, and the copy must not be: it could not be removed.
        shutil.copytree(Path(found.stdout.strip()) / path, scratch / "share" / kept, copy_function=shutil.copyfile)
