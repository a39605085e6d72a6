"""Verifies the signature of a model before the model itself is read."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from inference_protocol.messages import SIGNER_LENGTH, ModelSource, Signer, Storage, Trust, cut
from inference_protocol.reasons import WorkerReason
from inference_worker import fetch, volumes
from inference_worker.errors import WorkerError
from inference_worker.signing import bundle as bundles
from inference_worker.signing import manifest as manifests
from inference_worker.signing.bundle import Bundle
from inference_worker.signing.manifest import Manifest
from inference_worker.signing.strict import SignatureError

_BESIDE = "model.sig"
# What a model of one file is called, by its format.
_SUFFIXES = {"onnx": ".onnx", "torchscript": ".pt"}


@dataclass(frozen=True, slots=True)
class Signed:
    """A signature by a trusted signer for a model's name and version, and the files that it is of."""

    signer: Signer
    manifest: Manifest
    place: str
    subject: str

    def require(self, name: str, digest: str) -> None:
        """Raise WorkerError unless the signed file of this name has this digest."""
        try:
            self.manifest.require(name, digest)
        except SignatureError as error:
            raise _refused(self.place, self.subject, error) from error


def verified(source: ModelSource, *, hosts: Sequence[str], root: Path) -> Signed | None:
    """Return who signed a model, and which files; None where nobody has to.

    Raises WorkerError MODEL_UNSIGNED, MODEL_SIGNATURE_REFUSED, and what is raised for a file that can't be fetched.
    """
    trust = source.trust
    if trust is None:
        return None
    place = source.signature_uri or volumes.beside(source.uri, _BESIDE)
    subject = f"{source.name}@{source.version}"
    optional = not trust.required and source.signature_uri is None
    data = _fetched(place, subject, source.storage, optional=optional, hosts=hosts, root=root)
    if data is None:
        return None
    now = datetime.fromtimestamp(time.time(), UTC)
    try:
        bundle = bundles.parse(data)
        signer = _signer_of(bundle, trust, now)
        manifest = manifests.parse(bundle.payload)
        _require_named(manifest, source, trust)
    except SignatureError as error:
        raise _refused(place, subject, error) from error
    except Exception as error:
        # What nobody foresaw proves nothing either, and would be met again at the next attempt.
        raise _refused(place, subject, SignatureError(f"it can't be read ({type(error).__name__})")) from error
    return Signed(signer, manifest, place, subject)


def is_covered(asked: ModelSource, held: ModelSource) -> bool:
    """Whether what was verified of a loaded model holds for the one that is asked for: its signers, its name and its version."""
    if asked.trust is None:
        return True
    return (asked.trust, asked.name, asked.version) == (held.trust, held.name, held.version)


def _fetched(
    place: str, subject: str, storage: Storage | None, *, optional: bool, hosts: Sequence[str], root: Path
) -> bytes | None:
    missing, large = WorkerReason.MODEL_UNSIGNED, WorkerReason.MODEL_SIGNATURE_REFUSED
    try:
        return fetch.read_verified(
            place,
            digest=None,
            limit=bundles.LIMIT_BYTES,
            missing=missing,
            large=large,
            hosts=hosts,
            root=root,
            storage=storage,
        )[0]
    except WorkerError as error:
        if error.reason is not missing:
            raise
        if optional:
            return None
        raise WorkerError(
            missing,
            f"{subject} has to be signed, and {error.message}; sign its directory as {subject}, and put {_BESIDE} beside its file",
        ) from error


def _signer_of(bundle: Bundle, trust: Trust, now: datetime) -> Signer:
    """Who signed a bundle. Only what the bundle needs is imported: each kind costs tens of milliseconds."""
    method: Literal["Key", "Certificate", "Keyless"]
    if bundle.hint is not None:
        from inference_worker.signing.keys import signed_by

        method, name = "Key", signed_by(bundle, trust.keys)
    elif bundle.chain:
        from inference_worker.signing.certificates import certified

        method, name = "Certificate", certified(bundle, trust.authorities, trust.subjects, now)
    else:
        from inference_worker.signing.keyless import identified

        method, name = "Keyless", identified(bundle, trust.root, trust.identities)
    return Signer(cut(name, SIGNER_LENGTH), method, int(now.timestamp()))


def _require_named(manifest: Manifest, source: ModelSource, trust: Trust) -> None:
    """Bind a signature to the name and the version that it was made for, so that an older version can't stand for a newer one."""
    subject = f"{source.name}@{source.version}"
    wanted = subject if manifest.alone is None else subject + _SUFFIXES.get(source.format, "")
    if manifest.subject != wanted:
        raise SignatureError(f"it is of {manifest.subject[:200]!r}, and must be of {wanted!r}")
    if subject in trust.revoked:
        raise SignatureError(f"the administrator has revoked {subject}")


def _refused(place: str, subject: str, why: SignatureError) -> WorkerError:
    text = (
        f"{place} doesn't vouch for {subject}: {why}; restore what was signed, or have it signed as {subject} by a trusted signer"
    )
    return WorkerError(WorkerReason.MODEL_SIGNATURE_REFUSED, text)
