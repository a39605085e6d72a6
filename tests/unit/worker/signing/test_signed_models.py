"""Models that a trusted signer has to have signed: what is loaded then, and what is refused before anything reads it."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from inference_protocol.messages import ModelSource, Quantization, Trust, WorkerConfig
from inference_protocol.reasons import WorkerReason
from inference_worker import fetch, model, volumes
from inference_worker.engines import external_data
from inference_worker.errors import WorkerError
from inference_worker.model import Loaded
from inference_worker.signing import manifest as manifests
from inference_worker.signing.verify import is_covered
from tests.process import models
from tests.process.attacks import COUNT, Attacker
from tests.signers import ISSUER, SUBJECT, CertificateSigner, KeySigner, Sigstore

if TYPE_CHECKING:
    from collections.abc import Mapping

FIXTURES = Path(__file__).parent / "fixtures"
DATA = models.matmul()
FILES = {"model.onnx": DATA}
NAME = "net@1"


def put(volume: Path, files: Mapping[str, bytes], signature: bytes | None, folder: str = "m") -> None:
    (volume / folder).mkdir(exist_ok=True)
    for name, data in files.items():
        (volume / folder / name).write_bytes(data)
    if signature is not None:
        (volume / folder / "model.sig").write_bytes(signature)


def load(root: Path, trust: Trust | None, uri: str = "pvc://data/m/model.onnx", **changes: Any) -> Loaded:
    source = ModelSource(**{"name": "net", "version": "1", "uri": uri, "trust": trust, **changes})
    config = WorkerConfig("team", "job", "uid", 1, source, ("CPUExecutionProvider",), batch_size=3)
    return model.load(config, source, root=root)


def refusal(root: Path, trust: Trust, **changes: Any) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        load(root, trust, **changes)
    assert caught.value.permanent
    return caught.value


def signer(loaded: Loaded) -> tuple[str, str] | None:
    told = loaded.facts.signer
    return (told.name, told.method) if told is not None else None


def trust_of_fixtures(**changes: Any) -> Trust:
    trust = Trust(required=True, keys={"tool": (FIXTURES / "k.pub.pem").read_text()})
    return msgspec.structs.replace(trust, **changes)


@pytest.mark.parametrize("name", ["key.sig", "file.sig", "certificate.sig"])
def test_what_the_standard_tool_signs_is_loaded(root: Path, volume: Path, name: str) -> None:
    """Signed by model-signing 1.1.1 with a key: the directory net@1, and the file net@1.onnx; and with a certificate."""
    shutil.copytree(FIXTURES / "net@1", volume / "m")
    shutil.copy(FIXTURES / name, volume / "m" / "model.sig")
    trust = trust_of_fixtures(authorities=(FIXTURES / "root.pem").read_text(), subjects=(SUBJECT,))

    loaded = load(root, trust)

    assert signer(loaded) == ((SUBJECT, "Certificate") if name == "certificate.sig" else ("tool", "Key"))


@pytest.mark.parametrize("name", ["key.sig", "file.sig", "certificate.sig"])
def test_a_byte_that_changed_since_the_standard_tool_signed_is_refused(root: Path, volume: Path, name: str) -> None:
    shutil.copytree(FIXTURES / "net@1", volume / "m")
    shutil.copy(FIXTURES / name, volume / "m" / "model.sig")
    (volume / "m" / "model.onnx").write_bytes(DATA + b"\0")
    trust = trust_of_fixtures(authorities=(FIXTURES / "root.pem").read_text(), subjects=(SUBJECT,))

    assert refusal(root, trust).reason is WorkerReason.MODEL_SIGNATURE_REFUSED


def test_whom_nobody_trusts_signs_nothing_and_the_message_says_what_to_do(root: Path, volume: Path) -> None:
    put(volume, FILES, KeySigner().sign(NAME, FILES))

    error = refusal(root, KeySigner().trust)

    assert error.reason is WorkerReason.MODEL_SIGNATURE_REFUSED
    assert "pvc://data/m/model.sig" in error.message and "release" in error.message and "signed as net@1" in error.message


def test_a_model_without_a_signature_is_refused_where_one_is_required(root: Path, volume: Path) -> None:
    put(volume, FILES, None)

    error = refusal(root, KeySigner().trust)

    assert error.reason is WorkerReason.MODEL_UNSIGNED and "pvc://data/m/model.sig does not exist" in error.message


def test_where_none_is_required_a_model_without_a_signature_is_loaded_and_a_wrong_one_refused(root: Path, volume: Path) -> None:
    trust = msgspec.structs.replace(KeySigner().trust, required=False)
    put(volume, FILES, None)
    assert signer(load(root, trust)) is None

    put(volume, FILES, KeySigner().sign(NAME, FILES))

    assert refusal(root, trust).reason is WorkerReason.MODEL_SIGNATURE_REFUSED
    named = refusal(root, trust, signature_uri="pvc://data/m/none.sig")
    assert named.reason is WorkerReason.MODEL_UNSIGNED


def test_a_revoked_version_is_refused_though_it_is_signed(root: Path, volume: Path) -> None:
    owner = KeySigner()
    put(volume, FILES, owner.sign(NAME, FILES))

    error = refusal(root, msgspec.structs.replace(owner.trust, revoked=(NAME,)))

    assert error.reason is WorkerReason.MODEL_SIGNATURE_REFUSED and "revoked net@1" in error.message


@pytest.mark.parametrize("trusted", [True, False])
def test_a_certificate_counts_if_it_is_of_the_authority_for_a_subject_that_is_trusted(
    root: Path, volume: Path, *, trusted: bool
) -> None:
    owner = CertificateSigner(subject=SUBJECT if trusted else "else@example.com")
    put(volume, FILES, owner.sign(NAME, FILES))

    if trusted:
        assert signer(load(root, owner.trust)) == (SUBJECT, "Certificate")
    else:
        assert "else@example.com" in refusal(root, owner.trust).message


@pytest.mark.parametrize("days", [-2, 2])
def test_a_certificate_has_to_be_valid_now(root: Path, volume: Path, days: int) -> None:
    at = datetime.now(UTC) + timedelta(days=days)
    owner = CertificateSigner(start=at - timedelta(days=1), end=at + timedelta(days=1))
    put(volume, FILES, owner.sign(NAME, FILES))

    assert "not valid" in refusal(root, owner.trust).message


def test_a_keyless_signature_is_verified_offline_long_after_its_certificate_has_ended(root: Path, volume: Path) -> None:
    owner = Sigstore()
    at = datetime.now(UTC).replace(microsecond=0) - timedelta(days=300)
    put(volume, FILES, owner.sign(NAME, FILES, at=at))

    assert signer(load(root, owner.trust)) == (SUBJECT, "Keyless")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"by": "else@example.com"}, "else@example.com"),
        ({"issuer": ISSUER + ".evil"}, "doesn't trust"),
        ({"logged": False}, "in no log"),
    ],
    ids=["another subject", "another issuer", "a certificate in no log"],
)
def test_a_keyless_signature_of_anybody_else_is_refused(root: Path, volume: Path, changes: dict[str, Any], words: str) -> None:
    owner = Sigstore()
    put(volume, FILES, owner.sign(NAME, FILES, **changes))

    assert words in refusal(root, owner.trust).message


def test_weights_beside_a_model_are_verified_and_nothing_reads_the_model_before(
    root: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacker = Attacker()
    put(volume, attacker.genuine, None)
    assert load(root, attacker.trust, version="2").engine.run({"x": np.ones((1, 4), np.float32)})["y"][0, 0] == 2.0

    def read(data: bytes) -> tuple[str, ...]:
        raise AssertionError("the model was read before it was verified")

    monkeypatch.setattr(external_data, "files_of", read)
    put(volume, {"model.onnx": attacker.evil["model.onnx"] + b"\0"}, None)

    assert refusal(root, attacker.trust, version="2").reason is WorkerReason.MODEL_SIGNATURE_REFUSED


def test_the_original_of_a_variant_is_verified_before_anything_is_made_of_it(root: Path, volume: Path) -> None:
    owner = KeySigner()
    put(volume, FILES, KeySigner().sign(NAME, FILES))
    rows = Quantization(method="dynamic", evaluation_uri="pvc://data/none.npy")

    assert refusal(root, owner.trust, quantization=rows).reason is WorkerReason.MODEL_SIGNATURE_REFUSED


@pytest.mark.parametrize("form", ["onnx", "torchscript"])
def test_every_form_of_a_model_is_verified_before_its_engine_is_opened(
    root: Path, volume: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def opened(_: object) -> None:
        raise AssertionError("an engine was opened")

    monkeypatch.setattr(model, "open_engine", opened)
    put(volume, FILES, KeySigner().sign(NAME, FILES))

    assert refusal(root, KeySigner().trust, format=form).reason is WorkerReason.MODEL_SIGNATURE_REFUSED


def test_a_file_is_read_once_so_that_nothing_can_change_after_it_was_verified(
    root: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer who swaps the file as soon as it was read changes nothing: the bytes that were hashed are those that run."""
    attacker = Attacker()
    put(volume, attacker.genuine, None)
    read_once, reads = fetch._read, []

    def read(path: Path, *args: Any, **given: Any) -> bytes:
        data = read_once(path, *args, **given)
        reads.append(path.name)
        if path.name in attacker.evil:
            path.write_bytes(attacker.evil[path.name])
        return data

    monkeypatch.setattr(fetch, "_read", read)

    loaded = load(root, attacker.trust, version="2")

    assert reads == ["model.sig", "model.onnx", "weights.bin"]
    assert loaded.engine.run({"x": np.ones((1, 4), np.float32)})["y"][0, 0] == 2.0


ATTACKER = Attacker()


@pytest.mark.parametrize("kind", ATTACKER.kinds)
def test_none_of_twenty_attacks_is_loaded(root: Path, volume: Path, kind: str) -> None:
    """On real workers: tests/process/test_signatures.py."""
    reasons = []
    for files in ATTACKER.kinds[kind]():
        shutil.rmtree(volume / "m", ignore_errors=True)
        put(volume, files, None)
        reasons.append(refusal(root, ATTACKER.trust, version="2").reason)

    assert len(reasons) == COUNT
    assert set(reasons) <= {WorkerReason.MODEL_UNSIGNED, WorkerReason.MODEL_SIGNATURE_REFUSED}


def test_a_fault_that_nobody_foresaw_refuses_the_model_for_good(root: Path, volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """x509.InvalidVersion is no ValueError: a certificate of version 34 would have been tried again and again."""

    def fails(_: bytes) -> None:
        raise KeyError("unforeseen")

    owner = KeySigner()
    put(volume, FILES, owner.sign(NAME, FILES))
    monkeypatch.setattr(manifests, "parse", fails)

    assert refusal(root, owner.trust).reason is WorkerReason.MODEL_SIGNATURE_REFUSED


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("pvc://data/a/m.onnx", "pvc://data/a/model.sig"),
        ("pvc://data/m.onnx", "pvc://data/model.sig"),
        ("file:///m.onnx", "file:///model.sig"),
        ("s3://models/a/m.onnx", "s3://models/a/model.sig"),
        ("hf://org/repo@v1/a/m.onnx", "hf://org/repo@v1/a/model.sig"),
        ("oci://r:5000/a/b:v1#a/m.onnx", "oci://r:5000/a/b:v1#a/model.sig"),
        ("oci://r:5000/a/b:v1", "oci://r:5000/a/b:v1#model.sig"),
        ("https://h/a%20b/m.onnx?token=x/y#z", "https://h/a%20b/model.sig"),
    ],
)
def test_a_signature_is_beside_its_model(uri: str, place: str) -> None:
    assert volumes.beside(uri, "model.sig") == place


def test_a_loaded_model_stands_for_another_only_with_the_same_signers_name_and_version() -> None:
    trust = KeySigner().trust
    held = ModelSource("net", "2", "pvc://data/m", trust=trust)
    others: list[dict[str, Any]] = [{"name": "other"}, {"version": "1"}, {"trust": KeySigner().trust}]

    assert is_covered(held, held)
    assert not any(is_covered(msgspec.structs.replace(held, **change), held) for change in others)
    assert not is_covered(held, msgspec.structs.replace(held, trust=None))
    assert is_covered(msgspec.structs.replace(held, trust=None), held)
