"""Write a one-layer OCI image archive without any image tool; the pause image needs no more."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class _Blobs:
    """Content-addressed files of the archive under construction."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def add(self, media_type: str, data: bytes) -> dict[str, Any]:
        """Store bytes; return the descriptor that points to them."""
        name = hashlib.sha256(data).hexdigest()
        _add_file(self._archive, f"blobs/sha256/{name}", data)
        return {"mediaType": media_type, "digest": f"sha256:{name}", "size": len(data)}

    def add_json(self, media_type: str, value: object) -> dict[str, Any]:
        """Store a JSON document; return its descriptor."""
        return self.add(media_type, json.dumps(value, sort_keys=True).encode())


def write_single_file_image(target: Path, *, name: str, program: Path, path: str, entrypoint: Sequence[str]) -> None:
    """Write an image that holds one static program."""
    layer = _layer(program, path)
    with tarfile.open(target, "w") as archive:
        blobs = _Blobs(archive)
        config = blobs.add_json(
            _CONFIG,
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Entrypoint": list(entrypoint), "User": "65535:65535"},
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            },
        )
        packed = blobs.add(_LAYER, gzip.compress(layer, mtime=0))
        manifest = blobs.add_json(
            _MANIFEST,
            {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": [packed]},
        )
        manifest["annotations"] = {"io.containerd.image.name": name}
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [manifest]}
        _add_file(archive, "index.json", json.dumps(index).encode())
        _add_file(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')


def _layer(program: Path, path: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        _add_file(layer, path.lstrip("/"), program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _add_file(archive: tarfile.TarFile, name: str, data: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(data))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
