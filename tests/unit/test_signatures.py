"""Who has to sign which models: the administrator's rules decide, travel with the model, and are refused where nobody could obey."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from inference_operator.api.model import WarmPool
from inference_operator.settings import ConfigurationError, Settings, load_settings
from inference_operator.signatures import (
    KeylessSigning,
    SignatureRule,
    SigningCertificates,
    SigningIdentity,
    signatures_fault,
    trust_for,
)
from inference_operator.warmpools.eligibility import pool_config, pool_of
from inference_operator.workers.claims import claims
from inference_operator.workers.config import worker_config
from inference_protocol.messages import Identity, WorkerConfig
from tests.builders import SETTINGS, a_job, a_model, a_version, observed, resolved_of
from tests.signers import ISSUER, SUBJECT, CertificateSigner, KeySigner, Sigstore, new_key, public_pem

KEYS = {"release": public_pem(new_key())}
RULE = SignatureRule(keys=KEYS)
MODEL = a_model("m", a_version("1"), a_version("2", uri="pvc://data/m@2/model.onnx"))


def with_rules(*rules: SignatureRule) -> Settings:
    return msgspec.structs.replace(SETTINGS, model_signatures=rules)


def config_of(*rules: SignatureRule, **spec: Any) -> WorkerConfig:
    """What a worker of a job on the model is told."""
    settings = with_rules(*rules)
    asked = {"model": "m", **spec}
    job = resolved_of(observed(a_job(**asked), model=MODEL if asked["model"] == "m" else None), settings)
    return worker_config(job.job, job.spec, job.source, settings.accelerators["cpu"], number=1, settings=settings)


def test_without_rules_nobody_has_to_sign_and_nothing_that_runs_changes() -> None:
    assert config_of().model.trust is None
    assert b"trust" not in msgspec.json.encode(config_of())


def test_a_worker_is_told_who_has_to_sign_its_model() -> None:
    trust = config_of(RULE).model.trust

    assert trust is not None and (trust.required, trust.keys) == (True, KEYS)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"namespaces": ("default",)}, True),
        ({"namespaces": ("def*",), "models": ("m",)}, True),
        ({"namespaces": ("other", "prod-*")}, False),
        ({"models": ("n", "mm*")}, False),
    ],
)
def test_a_rule_is_about_the_namespaces_and_models_that_it_names(changes: dict[str, Any], *, found: bool) -> None:
    assert (config_of(msgspec.structs.replace(RULE, **changes)).model.trust is not None) is found


def test_the_first_rule_about_a_model_counts() -> None:
    other = SignatureRule(keys={"other": KEYS["release"]})
    exempt = SignatureRule(models=("m",), required=False)

    first = trust_for("default", "m", (RULE, other))

    assert first is not None and first.keys == KEYS
    assert trust_for("default", "m", (exempt, RULE)) is None
    assert trust_for("default", "n", (exempt, RULE)) is not None


def test_a_model_by_uri_has_the_name_of_its_file() -> None:
    of_net = SignatureRule(models=("net",), keys=KEYS)

    assert config_of(of_net, model="pvc://data/net.onnx").model.trust is not None
    assert config_of(of_net, model="pvc://data/other.onnx").model.trust is None
    assert config_of(RULE, model="pvc://data/other.onnx").model.trust is not None


def test_warm_workers_are_told_as_well() -> None:
    settings = with_rules(RULE)
    pool = pool_of(a_model("m", warm_pool=WarmPool(min=1)), settings)
    assert pool is not None

    assert pool_config(pool.like, "cpu", number=1, settings=settings).model.trust is not None


def test_another_rule_replaces_the_workers_that_it_is_about() -> None:
    """A key that is taken back would otherwise be believed for as long as its workers live."""
    for serves in (False, True):
        seen = observed(a_job(model="m", serve=serves), model=MODEL)
        revisions = {resolved_of(seen, with_rules(*rules)).revisions.combined for rules in ((), (RULE,))}
        others = SignatureRule(namespaces=("others",), keys=KEYS)
        assert len(revisions) == 2
        assert resolved_of(seen, with_rules(others)).revisions.combined in revisions


def test_a_signature_elsewhere_is_read_from_its_own_claim() -> None:
    version = replace(a_version(uri="pvc://models/m.onnx"), signature_uri="pvc://signatures/m.sig")
    job = resolved_of(observed(a_job(model="m"), model=a_model("m", version)), with_rules(RULE))

    assert job.source.signature_uri == "pvc://signatures/m.sig"
    mounted = claims(job.spec, job.source)
    assert (mounted["models"], mounted["signatures"]) == (False, False)


def test_all_that_a_rule_says_is_told() -> None:
    authority, sigstore = CertificateSigner().trust.authorities, json.dumps(Sigstore().root)
    rule = SignatureRule(
        keys=KEYS,
        certificates=SigningCertificates(authority, (SUBJECT,)),
        keyless=KeylessSigning(sigstore, (SigningIdentity(SUBJECT, ISSUER),)),
        revoked=("m@1",),
    )

    trust = trust_for("default", "m", (rule,))

    assert signatures_fault((rule,)) is None and trust is not None
    assert (trust.authorities, trust.subjects, trust.root) == (authority, (SUBJECT,), sigstore)
    assert (trust.identities, trust.revoked) == ((Identity(SUBJECT, ISSUER),), ("m@1",))


def a_private_pem() -> str:
    return KeySigner().key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def a_pem(key: Any) -> str:
    return str(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (SignatureRule(), "nobody may sign"),
        (SignatureRule(keys={"a": "none"}), r"keys\.a: no public key"),
        (SignatureRule(keys={"a": a_private_pem()}), "private key"),
        (SignatureRule(keys={"a": a_pem(ed25519.Ed25519PrivateKey.generate().public_key())}), "curves"),
        (SignatureRule(keys={"a": a_pem(ec.generate_private_key(ec.SECP256K1()).public_key())}), "curves"),
        (SignatureRule(keys={"": KEYS["release"]}), "a name has"),
        (SignatureRule(certificates=SigningCertificates("none", (SUBJECT,))), "no certificates"),
        (SignatureRule(keys=KEYS, certificates=SigningCertificates(subjects=(SUBJECT,))), "go together"),
        (SignatureRule(certificates=SigningCertificates(CertificateSigner().trust.authorities, ("*",))), "alone"),
        (SignatureRule(keyless=KeylessSigning("{}", (SigningIdentity(SUBJECT, ISSUER),))), "trusted_root.json"),
        (SignatureRule(keyless=KeylessSigning("[" * 10_000, (SigningIdentity(SUBJECT, ISSUER),))), "trusted_root.json"),
        (SignatureRule(keys=KEYS, keyless=KeylessSigning(identities=(SigningIdentity(SUBJECT, ISSUER),))), "go together"),
        (SignatureRule(keyless=KeylessSigning("{}", (SigningIdentity("*", ISSUER),))), "everybody"),
        (SignatureRule(keyless=KeylessSigning("{}", (SigningIdentity(SUBJECT, ""),))), "everybody"),
        (SignatureRule(keys=KEYS, revoked=("m",)), "NAME@VERSION"),
        (SignatureRule(keys={str(i): KEYS["release"] for i in range(400)}), "bytes"),
    ],
)
def test_a_rule_that_can_not_be_obeyed_ends_the_operator_at_its_start(tmp_path: Path, rule: SignatureRule, words: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"modelSignatures": [{"keys": KEYS}, msgspec.to_builtins(rule)]}))

    with pytest.raises(ConfigurationError, match=rf"modelSignatures\[1\]: .*{words}"):
        load_settings(file)


def test_rules_are_read_as_an_administrator_writes_them(tmp_path: Path) -> None:
    pem = "\n".join(f"        {line}" for line in KEYS["release"].splitlines())
    file = tmp_path / "config.yaml"
    file.write_text(f"modelSignatures:\n- namespaces: [prod]\n  keys:\n    release: |\n{pem}\n")

    assert load_settings(file).model_signatures == (SignatureRule(namespaces=("prod",), keys=KEYS),)
