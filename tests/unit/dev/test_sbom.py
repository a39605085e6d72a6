"""The bill of materials: it is valid CycloneDX, lists what the package managers of an image know, and is of that image."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from dev.console import DevError
from dev.sbom.document import document
from dev.sbom.image import read_image

if TYPE_CHECKING:
    from pathlib import Path

STATUS = """Package: libssl3t64
Status: install ok installed
Architecture: amd64
Source: openssl
Version: 3.5.9-1~deb13u1
Description: lines
 Version: 9 of a description is no field

Package: gone
Status: deinstall ok config-files
Version: 1
"""
OS = 'NAME="Debian"\nID=debian\nVERSION_ID="13"\n'
METADATA = "Metadata-Version: 2.4\nName: Flask_Thing\nVersion: 1.2\nLicense-Expression: Apache-2.0 AND MIT\n\nVersion: 3\n"
OLD = "Name: old\nVersion: 1\nLicense: " + "a whole text\n  " * 40 + "\n"
BASE = {"var/lib/dpkg/status": STATUS, "usr/lib/os-release": OS, "opt/deps/old-1.dist-info/METADATA": OLD, "etc/secret": "x"}
TOP = {"./opt/deps/flask_thing-1.2.dist-info/METADATA": METADATA}


def an_archive(path: Path, *layers: dict[str, str], change: str = "", **config: Any) -> Path:
    """An OCI archive with these layers. `change` spoils the blob of that kind after it was named."""
    blobs: dict[str, bytes] = {}

    def add(kind: str, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data + b" " if kind == change else data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    environment = ["PYTHON_VERSION=3.13.15", "PATH=/usr/bin"]
    settings = {"created": "2026-01-02T03:04:05Z", "architecture": "amd64", "config": {"Env": environment}, **config}
    top = {"config": add("config", json.dumps(settings).encode()), "layers": [add("layer", layer(files)) for files in layers]}
    entry = {
        **add("manifest", json.dumps(top).encode()),
        "annotations": {"org.opencontainers.image.ref.name": "reg:5000/a/worker:1"},
    }
    with tarfile.open(path, "w") as archive:
        for name, data in {"index.json": json.dumps({"manifests": [entry]}).encode()}.items():
            put(archive, name, data)
        for digest, data in blobs.items():
            put(archive, f"blobs/sha256/{digest}", data)
    return path


def layer(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            put(archive, name, text.encode())
    return buffer.getvalue()


def put(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def purls(path: Path) -> set[str]:
    return {part["purl"] for part in json.loads(document(read_image(path), "0.2.0"))["components"]}


def test_a_document_is_valid_and_names_its_image(tmp_path: Path) -> None:
    text = document(read_image(an_archive(tmp_path / "a.tar", BASE, TOP)), "0.2.0")

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    told = json.loads(text)["metadata"]
    assert told["timestamp"] == "2026-01-02T03:04:05+00:00"
    assert (told["component"]["name"], told["component"]["version"]) == ("worker", "0.2.0")
    assert told["component"]["purl"].startswith("pkg:oci/worker@sha256:")
    (of_root,) = [d for d in json.loads(text)["dependencies"] if d["ref"] == told["component"]["bom-ref"]]
    assert len(of_root["dependsOn"]) == 5


def test_it_lists_what_is_installed_by_debian_by_python_and_from_source(tmp_path: Path) -> None:
    assert purls(an_archive(tmp_path / "a.tar", BASE, TOP)) == {
        "pkg:deb/debian/libssl3t64@3.5.9-1~deb13u1?arch=amd64&distro=debian-13&upstream=openssl",
        "pkg:pypi/flask-thing@1.2",
        "pkg:pypi/old@1",
        "pkg:generic/python@3.13.15",
        "pkg:generic/inference-operator@0.2.0",
    }


@pytest.mark.parametrize(
    "whiteout", ["opt/deps/.wh.old-1.dist-info", "opt/deps/old-1.dist-info/.wh.METADATA", "opt/deps/.wh..wh..opq"]
)
def test_what_a_later_layer_removes_is_not_listed(tmp_path: Path, whiteout: str) -> None:
    assert "pkg:pypi/old@1" not in purls(an_archive(tmp_path / "a.tar", BASE, {whiteout: ""}))


def test_the_same_image_has_the_same_document(tmp_path: Path) -> None:
    first, second = (document(read_image(an_archive(tmp_path / name, BASE, TOP)), "1") for name in ("a.tar", "b.tar"))

    assert first == second


@pytest.mark.parametrize("change", ["manifest", "config", "layer"])
def test_an_archive_whose_bytes_were_changed_is_refused(tmp_path: Path, change: str) -> None:
    with pytest.raises(DevError, match="holds other bytes"):
        read_image(an_archive(tmp_path / "a.tar", BASE, change=change))


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"nothing")

    with pytest.raises(DevError, match="no OCI archive"):
        read_image(tmp_path / "a.tar")


def test_an_image_of_which_nothing_is_known_gets_no_empty_document(tmp_path: Path) -> None:
    """A bill that lists nothing would pass every scan."""
    with pytest.raises(DevError, match="no package manager"):
        document(read_image(an_archive(tmp_path / "a.tar", {"etc/hostname": "x"})), "1")
