"""The real two-node cluster with the operator in it: brought up once, a namespace of its own for every module that asks."""

import subprocess
import sys
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from examples.demo import steps
from examples.demo.cluster import RELEASE, ROOT, SYSTEM, Kubectl, build_images, copy_tree, install
from examples.demo.cluster import local as local_kubectl

BUILT = ROOT / "build" / "examples"
# A node that died is missed after less than fifty seconds. The kubelet's first wait before a restart is its longest, too: it would
# double at each kill of the operator.
QUICK = ("--node-monitor-grace-period", "20s", "--max-container-restart-period", "10s")


@pytest.fixture(scope="session")
def kube(example_models: Path) -> Kubectl:
    """The cluster, its images, and the operator of this checkout; the models that the spaces get are built."""
    with images_built_beside():
        subprocess.run([sys.executable, "-m", "dev.cluster", "up", *QUICK], cwd=ROOT, check=True)
    kubectl = local_kubectl()
    install(kubectl, build_images())
    return kubectl


@contextmanager
def images_built_beside() -> Iterator[None]:
    """Build the images meanwhile: what a cluster's start takes is mostly waits."""
    with subprocess.Popen([sys.executable, "-m", "dev.images", "--no-import"], cwd=ROOT, stdout=subprocess.DEVNULL) as building:
        yield
        assert building.wait() == 0


class Space:
    """A namespace with the example models and a volume; `folder` is the volume as this machine sees it."""

    def __init__(self, kube: Kubectl, folder: Path) -> None:
        self.kube = kube
        self.folder = folder

    @property
    def name(self) -> str:
        return self.kube.namespace


def make_space(kube: Kubectl, *, level: str = "restricted") -> Space:
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    inside = replace(kube, namespace=name)
    inside.create_namespace(level=level)
    folder = inside.volume("data")
    copy_tree(BUILT, folder)
    models = list(steps.pinned_models(BUILT))
    for model in models:
        model["metadata"]["namespace"] = name
    inside.apply(*models)
    return Space(inside, folder)


@pytest.fixture(scope="module")
def space(kube: Kubectl) -> Iterator[Space]:
    made = make_space(kube)
    yield made
    made.kube.delete("namespace", made.name, "--wait=false")


@pytest.fixture(scope="module")
def other_space(kube: Kubectl) -> Iterator[Space]:
    made = make_space(kube)
    yield made
    made.kube.delete("namespace", made.name, "--wait=false")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/e2e" in str(item.path):
            item.add_marker(pytest.mark.e2e)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure tells how the operator fares: nobody can look at a cluster that is gone."""
    report = yield
    if report.failed and "tests/e2e" in str(item.path) and "kube" in getattr(item, "fixturenames", ()):
        try:
            report.sections += [(f"operator: {what}", text) for what, text in _operator()]
        except Exception as error:  # noqa: BLE001 -- whatever it is, the tests go on
            report.sections.append(("operator", f"can't be asked: {error}"))
    return report


def _operator() -> Iterator[tuple[str, str]]:
    system = replace(local_kubectl(), namespace=SYSTEM)

    def ask(*arguments: str) -> str:
        return system.run(*arguments, "--request-timeout=10s", check=False)

    yield "pods", ask("get", "pods", "-o", "wide")
    yield "ends", ask("get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].lastState}")
    yield "events", ask("get", "events", "--sort-by=.lastTimestamp")[-3000:]
    for pod in ask("get", "pods", "-l", f"app.kubernetes.io/name={RELEASE}", "-o", "name").split():
        yield pod, ask("logs", pod, "--tail=40")
        yield f"{pod} before", ask("logs", pod, "--previous", "--tail=40")
