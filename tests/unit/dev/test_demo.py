"""The demo upgrades the operator and deletes jobs: on a cluster of this machine alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dev import kind
from dev.cluster import default_layout
from examples.demo.cluster import local

if TYPE_CHECKING:
    from pathlib import Path


def a_kubeconfig(path: Path, server: str) -> Path:
    document = {
        "current-context": "theirs",
        "contexts": [
            {"name": "mine", "context": {"cluster": "mine", "user": "u"}},
            {"name": "theirs", "context": {"cluster": "theirs", "user": "u"}},
        ],
        "clusters": [
            {"name": "mine", "cluster": {"server": "https://127.0.0.1:6443"}},
            {"name": "theirs", "cluster": {"server": server}},
        ],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("server", ["https://production.example.com", "https://10.0.0.1:6443", "https://127.0.0.1.example.com", ""])
def test_no_other_cluster_is_touched(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(a_kubeconfig(tmp_path / "config", server)))

    with pytest.raises(RuntimeError, match="no cluster of this machine"):
        local()


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://localhost", "https://[::1]:6443"])
def test_a_cluster_of_this_machine_is_taken(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = a_kubeconfig(tmp_path / "config", server)
    monkeypatch.setenv("KUBECONFIG", str(path))

    assert local().kubeconfig == path


def test_our_own_clusters_are_taken_whatever_their_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert local().kubeconfig == default_layout().kubeconfig
    for path in (default_layout().kubeconfig, kind.KUBECONFIG):
        monkeypatch.setenv("KUBECONFIG", str(path))
        assert local().kubeconfig == path


@pytest.mark.parametrize("text", ["", "[]", "{}", "a: [", '{"current-context": "x", "contexts": [], "clusters": []}'])
def test_what_is_no_kubeconfig_is_told(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    with pytest.raises(RuntimeError, match="is no kubeconfig"):
        local()
