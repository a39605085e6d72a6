"""What somebody can do who writes to the place of a signed model, without the key: a hundred ways, in five kinds.

Each makes a directory of a model out of a genuine one. `model.onnx` keeps its weights in `weights.bin`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, load_model_from_string

from tests.process import models
from tests.signers import (
    CertificateSigner,
    KeySigner,
    Sigstore,
    b64,
    bundle,
    encoded,
    public_pem,
    sha256,
    signed,
    statement,
    to_sign,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inference_protocol.messages import Trust

Files = dict[str, bytes]
SUBJECT = "net@2"
COUNT = 20
_WIDTH = 4


def a_model(scale: float) -> Files:
    """x [N, 4] -> y [N, 4] times the scale, which is in a second file."""
    made = models.model(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        [models.tensor("x", models.FLOAT, ["N", _WIDTH])],
        [models.tensor("y", models.FLOAT, ["N", _WIDTH])],
        {"w": np.full(_WIDTH, scale, np.float32)},
    )
    loaded = load_model_from_string(made)
    (weight,) = loaded.graph.initializer
    data = weight.raw_data
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", str(len(data)))):
        weight.external_data.add(key=key, value=value)
    return {"model.onnx": loaded.SerializeToString(), "weights.bin": data}


@dataclass
class Attacker:
    """One who has all of it but the key."""

    owner: KeySigner = field(default_factory=KeySigner)
    own: KeySigner = field(default_factory=KeySigner)

    @property
    def trust(self) -> Trust:
        return self.owner.trust

    @cached_property
    def good(self) -> Files:
        return a_model(2.0)

    @cached_property
    def evil(self) -> Files:
        return a_model(-1.0)

    @cached_property
    def genuine(self) -> Files:
        """Version 2 as its owner signed it."""
        return self.signed(self.good)

    def signed(self, files: Files, subject: str = SUBJECT) -> Files:
        """What the owner signs."""
        return {**files, "model.sig": self.owner.sign(subject, files)}

    def forged(self, files: Files, **changes: Any) -> Files:
        """The genuine signature beside other files, its document changed."""
        document = json.loads(self.genuine["model.sig"])
        document.update(changes)
        return {**files, "model.sig": encoded(document)}

    @property
    def kinds(self) -> dict[str, Callable[[], Iterator[Files]]]:
        """The kinds, by their names; COUNT attacks each."""
        return {
            "unsigned": self.unsigned,
            "wrongly signed": self.wrongly_signed,
            "re-signed": self.re_signed,
            "rolled back": self.rolled_back,
            "changed after verification": self.changed,
        }

    def unsigned(self) -> Iterator[Files]:
        """No signature, or something that is none."""
        genuine = self.genuine["model.sig"]
        for files in (self.good, self.evil):
            yield files
            yield {**files, "model.onnx.sig": genuine}
            for text in (b"", b"{}", b"null", b"[]", b"\0" * 100, b"{" * 100_000):
                yield {**files, "model.sig": text}
        for end in (1, len(genuine) // 2, len(genuine) - 1):
            yield {**self.good, "model.sig": genuine[:end]}
        yield {**self.good, "model.sig": genuine + b" " * (1 << 20)}

    def wrongly_signed(self) -> Iterator[Files]:
        """A signature of the owner's that is of something else, or is damaged."""
        document = json.loads(self.genuine["model.sig"])
        envelope = document["dsseEnvelope"]
        (signature,) = envelope["signatures"]
        yield {**self.evil, "model.sig": self.genuine["model.sig"]}
        yield {**self.good, "model.onnx": self.evil["model.onnx"] + b"\0", "model.sig": self.genuine["model.sig"]}
        yield {**self.good, "weights.bin": self.evil["weights.bin"], "model.sig": self.genuine["model.sig"]}
        yield {**self.good, "model.sig": self.owner.sign(SUBJECT, {"model.onnx": self.good["model.onnx"]})}
        yield {**self.good, "model.sig": self.owner.sign(SUBJECT, {f"x/{n}": d for n, d in self.good.items()})}
        yield self.forged(self.good, mediaType="application/vnd.dev.sigstore.bundle.v0.1+json")
        yield self.forged(self.good, dsseEnvelope={**envelope, "payloadType": "text/plain"})
        yield self.forged(self.good, dsseEnvelope={**envelope, "signatures": []})
        yield self.forged(self.good, dsseEnvelope={**envelope, "signatures": [signature, signature]})
        yield self.forged(self.good, more={})
        for predicate in ("https://model_signing/Digests/v0.1", "https://slsa.dev/provenance/v1"):
            payload = statement(SUBJECT, self.good, predicateType=predicate)
            yield {**self.good, "model.sig": encoded(self.owner.document(payload))}
        for change in ("blake2", "shards", "another whole", "twice"):
            yield {**self.good, "model.sig": encoded(self.owner.document(_odd(change, self.good)))}
        raw = bytearray(_bytes(signature["sig"]))
        for place in range(0, 64, 16):
            raw[place] ^= 1
            yield self.forged(self.good, dsseEnvelope={**envelope, "signatures": [{"sig": b64(bytes(raw)), "keyid": ""}]})

    def re_signed(self) -> Iterator[Files]:
        """The attacker's model under the attacker's own signature, in the owner's name."""
        payload = statement(SUBJECT, self.evil)
        mine = signed(self.own.key, to_sign(payload))
        genuine = json.loads(self.genuine["model.sig"])["dsseEnvelope"]["signatures"][0]["sig"]
        for hint in (sha256(public_pem(k.key).encode()).hex() for k in (self.owner, self.own)):
            yield self.evil_with(bundle(payload, mine, {"publicKey": {"hint": hint}}))
        yield self.evil_with(bundle(payload, mine, {"publicKey": {"hint": ""}}))
        yield self.evil_with(bundle(payload, mine, {"publicKey": {}}))
        yield self.evil_with(bundle(payload, mine, {"publicKey": {"rawBytes": b64(public_pem(self.own.key).encode())}}))
        yield self.evil_with(bundle(payload, _bytes(genuine), {"publicKey": {"hint": ""}}))
        yield self.evil_with(bundle(payload, b"", {"publicKey": {"hint": ""}}))
        yield self.evil_with(bundle(payload, mine, {}))
        both = bundle(payload, mine, {"publicKey": {"hint": ""}})
        both["dsseEnvelope"]["signatures"].append({"sig": genuine, "keyid": ""})
        yield self.evil_with(both)
        both["dsseEnvelope"]["signatures"].reverse()
        yield self.evil_with(both)
        for text in _doubled(self.genuine["model.sig"], encoded(bundle(payload, mine, {"publicKey": {"hint": ""}}))):
            yield {**self.evil, "model.sig": text}
        authority, sigstore = CertificateSigner(), Sigstore()
        yield {**self.evil, "model.sig": authority.sign(SUBJECT, self.evil)}
        yield {**self.evil, "model.sig": sigstore.sign(SUBJECT, self.evil)}
        yield self.evil_with({**sigstore.document(payload), "verificationMaterial": {"publicKey": {"hint": ""}, "tlogEntries": []}})
        for r, s in ((0, 0), (1, 1), (2**255, 2**255), (-1, -1)):
            yield self.evil_with(bundle(payload, _der(r, s), {"publicKey": {"hint": ""}}))

    def rolled_back(self) -> Iterator[Files]:
        """What the owner really signed, as something else than version 2 of this model."""
        old = a_model(1.0)
        names = ("net@1", "net@20", "net@2.0", "net@02", "net@", "net", "@2", "2", "net@2 ", " net@2", "NET@2", "net@2\0")
        for name in (*names, "net2", "other@2", "other/net@2", "net@2/", "net@2.onnx", "net-2"):
            yield self.signed(old, name)
        # As one file the name has a suffix: a directory's name is not that of a file.
        yield {**old, "model.sig": self.owner.sign(SUBJECT, {".": old["model.onnx"]})}
        yield {**old, "model.sig": self.owner.sign("net@1.onnx", {".": old["model.onnx"]})}

    def changed(self) -> Iterator[Files]:
        """The genuine signature beside files that were changed since."""
        own, weights = self.good["model.onnx"], self.good["weights.bin"]
        for place in range(0, len(own), len(own) // 7):
            yield {**self.genuine, "model.onnx": own[:place] + bytes([own[place] ^ 1]) + own[place + 1 :]}
        for place in range(0, len(weights), 2):
            yield {**self.genuine, "weights.bin": weights[:place] + bytes([weights[place] ^ 1]) + weights[place + 1 :]}
        yield {**self.genuine, "model.onnx": own + b"\0"}
        yield {**self.genuine, "model.onnx": own[:-1]}
        yield {**self.genuine, "weights.bin": weights + b"\0"}
        yield {**self.genuine, "weights.bin": self.evil["weights.bin"]}

    def evil_with(self, document: dict[str, Any]) -> Files:
        return {**self.evil, "model.sig": encoded(document)}


def _odd(change: str, files: Files) -> bytes:
    """A statement that says what the standard tool never says in its default form."""
    found = json.loads(statement(SUBJECT, files))
    resources = found["predicate"]["resources"]
    if change == "blake2":
        resources[0]["algorithm"] = "blake2"
    if change == "shards":
        found["predicate"]["serialization"]["method"] = "shards"
    if change == "another whole":
        found["subject"][0]["digest"]["sha256"] = "0" * 64
    if change == "twice":
        resources.append(resources[0])
        whole = sha256(b"".join(bytes.fromhex(each["digest"]) for each in resources)).hex()
        found["subject"][0]["digest"]["sha256"] = whole
    return json.dumps(found).encode()


def _doubled(good: bytes, evil: bytes) -> Iterator[bytes]:
    """One document that has each field twice: a reader takes the first of them or the last."""
    part = "dsseEnvelope"
    for first, last in ((good, evil), (evil, good)):
        head, told = json.loads(first), json.loads(last)[part]
        yield encoded(head)[:-1] + b', "' + part.encode() + b'": ' + encoded(told) + b"}"
    yield good + evil


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _der(r: int, s: int) -> bytes:
    parts = b"".join(b"\x02" + bytes([len(d)]) + d for d in (n.to_bytes(33, signed=True) for n in (r, s)))
    return b"\x30" + bytes([len(parts)]) + parts
