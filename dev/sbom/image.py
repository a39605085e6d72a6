"""Read from an OCI archive, without any image tool, what an image says of itself: its config, and files of its package managers."""

import hashlib
import json
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dev.console import DevError

_WANTED = re.compile(r"var/lib/dpkg/status|(usr/lib|etc)/os-release|(.*/)?[^/]+\.dist-info/METADATA")
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its name, the digest of its manifest (`sha256:HEX`), when it was made (RFC 3339), its environment, its files."""

    name: str
    digest: str
    created: str
    architecture: str
    environment: Mapping[str, str]
    files: Mapping[str, bytes]

    @property
    def short_name(self) -> str:
        """The name without registry, path and tag."""
        return self.name.rpartition("/")[2].partition("@")[0].partition(":")[0]


def read_image(path: Path) -> Image:
    """The one image of an OCI archive. Raises DevError for another file, and for a blob that is not what its digest says."""
    try:
        with tarfile.open(path) as archive:
            return _read(archive)
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        raise DevError(f"{path} is no OCI archive of one image: {error}") from error


def _read(archive: tarfile.TarFile) -> Image:
    entry = _only(_json(archive, "index.json"))
    name = entry.get("annotations", {}).get("org.opencontainers.image.ref.name", "")
    manifest = _json(archive, _blob(entry))
    if "manifests" in manifest:
        entry = _only(manifest)
        manifest = _json(archive, _blob(entry))
    config = _json(archive, _blob(manifest["config"]))
    files: dict[str, bytes] = {}
    for layer in manifest["layers"]:
        _apply(_verified(archive, _blob(layer)), files)
    return Image(
        name=name,
        digest=entry["digest"],
        created=config["created"],
        architecture=config["architecture"],
        environment=dict(pair.split("=", 1) for pair in config.get("config", {}).get("Env") or ()),
        files=files,
    )


def _only(index: Mapping[str, Any]) -> dict[str, Any]:
    """The image that an index names, attestations left aside."""
    real = [m for m in index["manifests"] if m.get("platform", {}).get("architecture") != "unknown"]
    if len(real) != 1:
        raise ValueError(f"{len(real)} images; copy that of one platform")
    found: dict[str, Any] = real[0]
    return found


def _blob(descriptor: Mapping[str, Any]) -> str:
    return "blobs/" + str(descriptor["digest"]).replace(":", "/")


def _json(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    with _verified(archive, name) as file:
        found: dict[str, Any] = json.load(file)
        return found


def _verified(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """A file of the archive, at its start. Raises ValueError for a blob whose bytes have another digest."""
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    if name.startswith("blobs/"):
        actual = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type] # reads as a file does
        if name != f"blobs/sha256/{actual}":
            raise ValueError(f"{name} holds other bytes")
        file.seek(0)
    return file


def _apply(layer: IO[bytes], files: dict[str, bytes]) -> None:
    """Lay a layer over the files below it."""
    with layer, tarfile.open(fileobj=layer) as entries:
        for entry in entries:
            path = entry.name.removeprefix("./").lstrip("/")
            folder, _, name = path.rpartition("/")
            if name.startswith(_WHITEOUT):
                gone = f"{folder}/" if name == _OPAQUE else f"{folder}/{name.removeprefix(_WHITEOUT)}"
                for known in [f for f in files if f == gone.lstrip("/") or f.startswith(f"{gone.strip('/')}/")]:
                    del files[known]
            elif entry.isfile() and _WANTED.fullmatch(path) and (content := entries.extractfile(entry)) is not None:
                files[path] = content.read()
