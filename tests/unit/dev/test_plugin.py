"""The manifest by which Krew installs the plug-in."""

import tarfile
from pathlib import Path

import pytest
import yaml

from dev.plugin import TEMPLATE, manifest, pack


def test_the_template_is_what_krew_takes() -> None:
    """Krew's own rules (its developer and naming guides): a plain name, a short description, the licence and the binary."""
    found = yaml.safe_load(TEMPLATE.read_text())
    spec = found["spec"]

    assert (found["apiVersion"], found["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert found["metadata"]["name"] == TEMPLATE.stem == "inference"
    assert len(spec["shortDescription"]) <= 50 and not spec["shortDescription"].endswith(".")
    for platform in spec["platforms"]:
        assert platform["bin"] == "kubectl-inference" and {"uri", "sha256", "files", "selector"} <= platform.keys()
        assert {"from": "LICENSE", "to": "."} in platform["files"]


def test_a_manifest_names_the_archive_of_its_version() -> None:
    made = manifest(TEMPLATE.read_text(), version="0.2.0", url="https://example.com/v0.2.0/", archive="p.tar.gz", digest="ab" * 32)
    (platform,) = yaml.safe_load(made)["spec"]["platforms"]

    assert (platform["uri"], platform["sha256"]) == ("https://example.com/v0.2.0/p.tar.gz", "ab" * 32)
    assert yaml.safe_load(made)["spec"]["version"] == "v0.2.0" and "_" not in made


def test_an_archive_has_the_files_that_the_manifest_takes_out_of_it(tmp_path: Path) -> None:
    frozen = tmp_path / "frozen"
    frozen.mkdir()
    (frozen / "kubectl-inference").write_text("")
    (frozen / "lib.so").write_text("a library")
    (frozen / "lib.so.1").symlink_to("lib.so")

    digest = pack(frozen, tmp_path / "p.tar.gz")

    assert len(digest) == 64
    with tarfile.open(tmp_path / "p.tar.gz") as archive:
        assert {"kubectl-inference/kubectl-inference", "LICENSE"} <= set(archive.getnames())
        assert all(one.isfile() or one.isdir() for one in archive), "Krew unpacks no links"
        assert (archive.extractfile("kubectl-inference/lib.so.1") or pytest.fail("no file")).read() == b"a library"
