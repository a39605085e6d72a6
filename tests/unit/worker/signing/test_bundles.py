"""Bundles that somebody has changed: every part that is there is checked, and what can be read in two ways is not read."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.signing import bundle as bundles
from inference_worker.signing import keyless, log_proofs, trusted_root
from inference_worker.signing import manifest as manifests
from inference_worker.signing.certificates import certified, is_like
from inference_worker.signing.keyless import identified
from inference_worker.signing.keys import signed_by
from inference_worker.signing.strict import SignatureError, unbase64
from tests.signers import SUBJECT, CertificateSigner, Document, KeySigner, Sigstore, b64, encoded, sha256, statement
from tests.unit.worker.conftest import STEADY

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = {"a/b.onnx": b"1", "c.bin": b"2"}
NAME = "net@1"
NOW = datetime.now(UTC)
BY_KEY, BY_CERTIFICATE, BY_LOG = KeySigner(), CertificateSigner(), Sigstore()
Path = tuple[str | int, ...]


def by_key(data: bytes) -> str:
    return signed_by(bundles.parse(data), BY_KEY.trust.keys)


def by_certificate(data: bytes) -> str:
    return certified(bundles.parse(data), BY_CERTIFICATE.trust.authorities, BY_CERTIFICATE.trust.subjects, NOW)


def by_log(data: bytes) -> str:
    return identified(bundles.parse(data), BY_LOG.trust.root, BY_LOG.trust.identities)


SIGNED: dict[str, tuple[Callable[[bytes], str], Document]] = {
    "key": (by_key, json.loads(BY_KEY.sign(NAME, FILES))),
    "certificate": (by_certificate, json.loads(BY_CERTIFICATE.sign(NAME, FILES))),
    "keyless": (by_log, json.loads(BY_LOG.sign(NAME, FILES))),
}


def leaves(part: Any, at: Path = ()) -> Iterator[Path]:
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in inner:
        yield from leaves(value, (*at, key))
    if isinstance(part, str):
        yield at


# What names a signer proves nothing, and nobody reads it. A hint only says which key to try.
UNREAD = {("dsseEnvelope", "signatures", 0, "keyid")}
LEAVES = [(kind, at) for kind, (_, document) in SIGNED.items() for at in leaves(document) if at not in UNREAD]


def changed(document: Document, at: Path, change: Callable[[str], Any]) -> bytes:
    copy = deepcopy(document)
    part: Any = copy
    for key in at[:-1]:
        part = part[key]
    part[at[-1]] = change(part[at[-1]])
    return encoded(copy)


def another(text: str) -> str:
    middle = len(text) // 3
    return text[:middle] + ("B" if text[middle : middle + 1] != "B" else "C") + text[middle + 1 :]


@pytest.mark.parametrize("kind", SIGNED)
def test_what_was_signed_is_read(kind: str) -> None:
    verify, document = SIGNED[kind]

    assert verify(encoded(document))
    manifest = manifests.parse(bundles.parse(encoded(document)).payload)
    assert (manifest.subject, manifest.files) == (NAME, {name: sha256(data).hex() for name, data in FILES.items()})


CHANGES: dict[str, Callable[[str], Any]] = {
    "another": another,
    "doubled": lambda text: text + text,
    "empty": lambda _: "",
    "null": lambda _: None,
    "listed": lambda text: [text],
}
# A signer may leave its hint out.
CASES = [(kind, at, name) for kind, at in LEAVES for name in CHANGES if (at[-1], name) != ("hint", "empty")]


@pytest.mark.parametrize(("kind", "at", "change"), CASES, ids=str)
def test_every_part_of_a_bundle_is_checked(kind: str, at: Path, change: str) -> None:
    verify, document = SIGNED[kind]
    with pytest.raises(SignatureError):
        verify(changed(document, at, CHANGES[change]))


@pytest.mark.parametrize("kind", SIGNED)
def test_a_part_that_is_there_twice_is_not_read(kind: str) -> None:
    verify, document = SIGNED[kind]
    for name in document:
        text = encoded(document)[:-1] + b', "' + name.encode() + b'": ' + json.dumps(document[name]).encode() + b"}"
        with pytest.raises(SignatureError, match="twice"):
            verify(text)


@pytest.mark.parametrize("kind", SIGNED)
def test_what_is_beside_a_bundles_fields_is_not_read(kind: str) -> None:
    verify, document = SIGNED[kind]
    with pytest.raises(SignatureError):
        verify(encoded({**document, "more": 1}))
    with pytest.raises(SignatureError):
        verify(
            encoded({**document, "verificationMaterial": {**document["verificationMaterial"], "publicKey": {"hint": ""}, "x": 1}})
        )


def test_a_bundle_of_one_kind_is_not_taken_for_another() -> None:
    for kind, (_, document) in SIGNED.items():
        for other, (verify, _) in SIGNED.items():
            if other != kind:
                with pytest.raises(SignatureError):
                    verify(encoded(document))


def test_a_bundle_has_one_kind_of_signer() -> None:
    (by_key_, key), (_, chain) = SIGNED["key"], SIGNED["certificate"]
    both = {**key["verificationMaterial"], **chain["verificationMaterial"]}

    with pytest.raises(SignatureError, match="one of"):
        by_key_(encoded({**key, "verificationMaterial": both}))


def test_a_bundle_that_is_too_long_is_not_read() -> None:
    verify, document = SIGNED["key"]
    text = encoded(document)

    assert verify(text.ljust(bundles.LIMIT_BYTES))
    with pytest.raises(SignatureError, match="more than"):
        verify(text.ljust(bundles.LIMIT_BYTES + 1))


@pytest.mark.parametrize("text", ["QQ", "QR==", "QQ==\n", " QQ==", "QQ==QQ==", "Q-==", "QQ==="])
def test_base64_has_one_form(text: str) -> None:
    assert unbase64("QQ==", "it") == b"A"
    with pytest.raises(SignatureError):
        unbase64(text, "it")


def test_a_certificate_for_servers_signs_no_model() -> None:
    server = CertificateSigner(use=ExtendedKeyUsageOID.SERVER_AUTH)

    with pytest.raises(SignatureError, match="not for signing code"):
        certified(bundles.parse(server.sign(NAME, FILES)), server.trust.authorities, (SUBJECT,), NOW)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"signs": b"{}"}, "not by the key of its certificate"),
        ({"lies": {"payloadHash": {"algorithm": "sha256", "value": "0" * 64}}}, "another payload"),
        ({"lies": {"signatures": [{"signature": b64(b"1"), "verifier": b64(b"1")}]}}, "another signature"),
        ({"lies": {"signatures": []}}, "entry can't be read"),
    ],
)
def test_what_the_log_took_down_has_to_be_this_signature(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        by_log(BY_LOG.sign(NAME, FILES, **given))


def test_what_the_log_took_down_has_to_be_this_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two certificates of one key: the log knows one of them."""
    made = BY_LOG.document(statement(NAME, FILES))
    other = BY_LOG.document(statement(NAME, FILES))
    # The keys differ as well, so what the key signs is left out here.
    monkeypatch.setattr(keyless, "is_signed", lambda *_: True)
    made["verificationMaterial"]["certificate"] = other["verificationMaterial"]["certificate"]

    with pytest.raises(SignatureError, match="another certificate"):
        by_log(encoded(made))


@pytest.mark.parametrize(
    "subject", [[], [{"name": NAME, "digest": {}}], [{"name": NAME, "digest": {"sha256": "0" * 64, "sha512": "0" * 128}}]]
)
def test_a_statement_has_one_subject_with_one_digest(subject: list[Document]) -> None:
    with pytest.raises(SignatureError):
        manifests.parse(statement(NAME, FILES, subject=subject))


@pytest.mark.parametrize("name", ["/a", "../a", "a/../b", "a//b", "./a", "a/", ""])
def test_a_path_that_leads_elsewhere_is_not_read(name: str) -> None:
    with pytest.raises(SignatureError):
        manifests.parse(statement(NAME, {name: b"1"}))


def test_a_model_of_one_file_lists_no_others() -> None:
    assert manifests.parse(statement("net@1.onnx", {".": b"1"})).alone == sha256(b"1").hex()
    with pytest.raises(SignatureError, match="lists others"):
        manifests.parse(statement("net@1.onnx", {".": b"1", "b": b"2"}))


@pytest.mark.parametrize(
    ("name", "pattern", "like"),
    [
        ("a@b.c", "a@b.c", True),
        ("a@b.c", "a@b", False),
        ("xa@b.c", "a@b.c", False),
        ("ci/x@v1", "ci/x@*", True),
        ("ci", "ci/*", False),
    ],
)
def test_a_subject_is_whole_or_a_prefix_with_a_star(name: str, pattern: str, *, like: bool) -> None:
    assert is_like(name, pattern) is like


def test_a_manifest_takes_no_other_name_and_no_other_digest() -> None:
    manifest = manifests.parse(statement(NAME, FILES))
    digests = {name: f"sha256:{sha256(data).hex()}" for name, data in FILES.items()}

    manifest.require("./c.bin", digests["c.bin"])
    for name, digest in (("b.onnx", digests["a/b.onnx"]), ("c.bin", digests["a/b.onnx"]), ("c.bin", digests["c.bin"][7:])):
        with pytest.raises(SignatureError):
            manifest.require(name, digest)


@STEADY
@given(size=st.integers(1, 40), data=st.data())
def test_a_proof_leads_to_the_root_from_its_own_entry_alone(size: int, data: st.DataObject) -> None:
    bodies = [bytes([i]) for i in range(size)]
    index = data.draw(st.integers(0, size - 1))
    root, path = tree(bodies), way(bodies, index)

    assert log_proofs.root_of(bodies[index], index, size, path) == root
    other = data.draw(st.integers(0, size))
    if other != index:
        assert found_root(bodies[index], other, size, path) != root
    assert found_root(b"x", index, size, path) != root
    for wrong in (path[:-1], [*path, root]):
        if wrong != path:
            assert found_root(bodies[index], index, size, wrong) is None


def found_root(body: bytes, index: int, size: int, path: list[bytes]) -> bytes | None:
    try:
        return log_proofs.root_of(body, index, size, path)
    except SignatureError:
        return None


def tree(bodies: list[bytes]) -> bytes:
    """RFC 6962, 2.1."""
    if len(bodies) == 1:
        return sha256(b"\0" + bodies[0])
    half = 1 << (len(bodies) - 1).bit_length() - 1
    return sha256(b"\1" + tree(bodies[:half]) + tree(bodies[half:]))


def way(bodies: list[bytes], index: int) -> list[bytes]:
    """RFC 6962, 2.1.1."""
    if len(bodies) == 1:
        return []
    half = 1 << (len(bodies) - 1).bit_length() - 1
    if index < half:
        return [*way(bodies[:half], index), tree(bodies[half:])]
    return [*way(bodies[half:], index - half), tree(bodies[:half])]


def test_an_authority_or_a_log_counts_only_while_it_was_trusted() -> None:
    _, document = SIGNED["keyless"]
    root = BY_LOG.root
    past = {"start": "2021-01-01T00:00:00Z", "end": "2022-01-01T00:00:00Z"}
    for ended in (root["tlogs"][0]["publicKey"], root["ctlogs"][0]["publicKey"], root["certificateAuthorities"][0]):
        now, ended["validFor"] = ended["validFor"], past
        with pytest.raises(SignatureError):
            identified(bundles.parse(encoded(document)), json.dumps(root), BY_LOG.trust.identities)
        ended["validFor"] = now
    assert identified(bundles.parse(encoded(document)), json.dumps(root), BY_LOG.trust.identities)


def test_another_sigstore_is_not_trusted() -> None:
    _, document = SIGNED["keyless"]
    for text in (Sigstore().trust.root, ""):
        with pytest.raises(SignatureError):
            identified(bundles.parse(encoded(document)), text, BY_LOG.trust.identities)


@STEADY
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_words(data: bytes) -> None:
    for read in (bundles.parse, manifests.parse, lambda raw: trusted_root.parse(raw.decode("latin-1"))):
        with pytest.raises(SignatureError):
            read(data)
