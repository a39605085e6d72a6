"""Reads what was signed: an in-toto statement that names a model, and the digest of each of its files.

The predicate is `https://model_signing/signature/v1.0`. A file has one digest, SHA-256; the tool's other algorithms are refused.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Literal

import msgspec

from inference_worker.signing.strict import SignatureError, decode

_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://model_signing/signature/v1.0"
# What the tool calls a model that is one file.
_ITSELF = "."

_Hex = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class _Digest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: _Hex


class _Subject(msgspec.Struct, frozen=True):
    name: _Name
    digest: _Digest


class _Resource(msgspec.Struct, frozen=True):
    name: _Name
    algorithm: Literal["sha256"]
    digest: _Hex


class _Serialization(msgspec.Struct, frozen=True):
    # By shards a digest is that of a part of a file.
    method: Literal["files"]
    hash_type: Literal["sha256"]


class _Predicate(msgspec.Struct, frozen=True):
    serialization: _Serialization
    resources: Annotated[tuple[_Resource, ...], msgspec.Meta(min_length=1, max_length=10_000)]


class _Statement(msgspec.Struct, frozen=True, rename={"kind": "_type", "predicate_type": "predicateType"}):
    kind: str
    subject: Annotated[tuple[_Subject, ...], msgspec.Meta(min_length=1, max_length=1)]
    predicate_type: str
    predicate: _Predicate


@dataclass(frozen=True, slots=True)
class Manifest:
    """A signed model: the name of its directory, and the SHA-256 (hex) of its files by their paths in it.

    One that was signed as a single file has that file's name, and the digest alone.
    """

    subject: str
    files: Mapping[str, str]
    alone: str | None = None

    def require(self, name: str, digest: str) -> None:
        """Raise SignatureError unless this is the digest (`sha256:HEX`) that was signed under this name."""
        name = str(PurePosixPath(name))
        signed = self.alone if self.alone is not None else self.files.get(name)
        if signed is None:
            raise SignatureError(f"{name!r} is not among the signed files ({len(self.files)})")
        if digest != f"sha256:{signed}":
            hint = "; one file was signed, so sign the directory if there are several" if self.alone is not None else ""
            raise SignatureError(f"{name!r} is not the file that was signed{hint}")


def parse(payload: bytes) -> Manifest:
    """Read a signed statement. Raises SignatureError, also where it contradicts itself."""
    found = decode(payload, _Statement, "the signed statement")
    if found.kind != _STATEMENT or found.predicate_type != _PREDICATE:
        raise SignatureError(f"what was signed is no model: {found.predicate_type[:100]!r}")
    resources = found.predicate.resources
    whole = hashlib.sha256(b"".join(bytes.fromhex(each.digest) for each in resources)).hexdigest()
    if found.subject[0].digest.sha256 != whole:
        raise SignatureError("the subject's digest is not that of its files")
    files = {_checked(each.name): each.digest for each in resources}
    if len(files) != len(resources):
        raise SignatureError("a file is listed twice")
    alone = files.get(_ITSELF)
    if alone is not None and len(files) != 1:
        raise SignatureError("a model of one file lists others")
    return Manifest(found.subject[0].name, files, alone)


def _checked(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name:
        raise SignatureError(f"{name[:100]!r} is no path in a model's directory")
    return name
