"""What proves that a transparency log has an entry: its promise, and a path of hashes to a root that it has signed (RFC 6962)."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509.certificate_transparency import LogEntryType

from inference_worker.signing.bundle import LogEntry
from inference_worker.signing.keys import is_signed
from inference_worker.signing.strict import SignatureError, unbase64
from inference_worker.signing.trusted_root import Log

_LEAF, _NODE = b"\0", b"\1"
_MARK = "\N{EM DASH} "
_HINT_BYTES = 4
_MOST_DIGITS = 19
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sha256(data: bytes) -> bytes:
    """The digest."""
    return hashlib.sha256(data).digest()


def require_logged(entry: LogEntry, key: PublicKeyTypes) -> None:
    """Raise SignatureError unless the log promised the entry at its time, and has it."""
    if not is_signed(key, entry.promise, _promised(entry)):
        raise SignatureError("its log's promise is not by the log's key")
    size, root = _signed_root(entry, key)
    if (size, root) != (entry.tree_size, entry.root):
        raise SignatureError("its log's checkpoint is of another root")
    if root_of(entry.body, entry.proof_index, entry.tree_size, entry.hashes) != root:
        raise SignatureError("its log's proof does not lead to the log's root")


def _promised(entry: LogEntry) -> bytes:
    """What a promise signs, as canonical JSON."""
    told = {
        "body": base64.b64encode(entry.body).decode(),
        "integratedTime": entry.time,
        "logID": entry.log_id.hex(),
        "logIndex": entry.index,
    }
    return msgspec.json.encode(told)


def root_of(body: bytes, index: int, size: int, hashes: Sequence[bytes]) -> bytes:
    """The root of a tree of so many entries, from one entry and the hashes on its way up. Raises SignatureError."""
    if index >= size:
        raise SignatureError("its log's proof is of an entry beyond the tree")
    node, last, found = index, size - 1, sha256(_LEAF + body)
    for each in hashes:
        if last == 0:
            raise SignatureError("its log's proof is too long")
        if node % 2 or node == last:
            found = sha256(_NODE + each + found)
            while node % 2 == 0 and node:
                node, last = node >> 1, last >> 1
        else:
            found = sha256(_NODE + found + each)
        node, last = node >> 1, last >> 1
    if last != 0:
        raise SignatureError("its log's proof is too short")
    return found


def _signed_root(entry: LogEntry, key: PublicKeyTypes) -> tuple[int, bytes]:
    """The size and the root that the log has signed: a note of lines, an empty one, and signatures."""
    text, parted, signatures = entry.checkpoint.partition("\n\n")
    _, size, root, *_ = (*text.split("\n"), "", "", "")
    lines = signatures.removesuffix("\n").split("\n")
    readable = (
        parted and size.isascii() and size.isdigit() and len(size) <= _MOST_DIGITS and all(x.startswith(_MARK) for x in lines)
    )
    if not readable:
        raise SignatureError("its log's checkpoint can't be read")
    for line in lines:
        # The log's own id begins its signatures; there may be those of witnesses.
        signature = unbase64(line.rpartition(" ")[2], "a checkpoint's signature")
        if signature[:_HINT_BYTES] == entry.log_id[:_HINT_BYTES] and is_signed(key, signature[_HINT_BYTES:], f"{text}\n".encode()):
            return int(size), unbase64(root, "a checkpoint's root")
    raise SignatureError("its log's checkpoint is not by the log's key")


def require_certificate_logged(leaf: x509.Certificate, issuer: bytes, logs: Mapping[bytes, Log]) -> None:
    """Raise SignatureError unless a trusted log of certificates has promised this one. `issuer` is its issuer's key (DER)."""
    try:
        found = leaf.extensions.get_extension_for_class(x509.PrecertificateSignedCertificateTimestamps).value
    except x509.ExtensionNotFound as error:
        raise SignatureError("its certificate is in no log") from error
    body = leaf.tbs_precertificate_bytes
    for each in found:
        log = logs.get(each.log_id)
        at = each.timestamp.replace(tzinfo=UTC)
        if log is None or at not in log.period or each.entry_type is not LogEntryType.PRE_CERTIFICATE:
            continue
        milliseconds = (at - _EPOCH) // _MILLISECOND
        signed = b"".join(
            (
                b"\0\0",
                milliseconds.to_bytes(8),
                b"\0\1",
                sha256(issuer),
                len(body).to_bytes(3),
                body,
                len(each.extension_bytes).to_bytes(2),
                each.extension_bytes,
            )
        )
        if is_signed(log.key, each.signature, signed):
            return
    raise SignatureError("its certificate is in no log that the administrator's trusted root has")
