"""An API server without nodes, an Argo CD on it, and a Git repository; built and started only where they are asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.conftest import REPOSITORY, Cluster, api_server
from tests.cluster.operators import NODE, make_node
from tests.gitops.argocd import ArgoCd, argo_cd
from tests.gitops.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS = REPOSITORY / "charts" / "inference-operator" / "files" / "argocd" / "inference.myorg"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skipif(
        os.environ.get("INFERENCE_GITOPS") != "all", reason="INFERENCE_GITOPS=all builds Argo CD and Flux's helm-controller"
    )
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(missing)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with api_server(tmp_path_factory.mktemp("cluster")) as made:
        make_node(made.client, NODE)
        yield made


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("git") / "gitops").create()


@pytest.fixture(scope="module")
def argocd(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArgoCd]:
    with argo_cd(cluster.kubeconfig, tmp_path_factory.mktemp("argocd"), health_scripts()) as made:
        yield made


def health_scripts() -> dict[str, str]:
    """What the page has one put into `argocd-cm`."""
    kinds = sorted(path.name for path in SCRIPTS.iterdir())
    return {f"resource.customizations.health.inference.myorg_{kind}": (SCRIPTS / kind / "health.lua").read_text() for kind in kinds}
