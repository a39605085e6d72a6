"""A worker whose administrator requires signatures: none of a hundred models that a trusted signer did not sign gets ready."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest

from inference_protocol.messages import TASKS_PATH, ModelSource
from inference_protocol.reasons import WorkerReason
from tests.process import models
from tests.process.attacks import COUNT, Attacker
from tests.process.harness import CLAIM, ON_TRITON, a_config
from tests.process.test_tasks import COLOCATION, a_colocated_order, a_warm_worker, ask, end_of
from tests.process.wire import get, infer_json, post
from tests.signers import KeySigner

if TYPE_CHECKING:
    from inference_protocol.messages import Trust, WorkerConfig
    from tests.process.attacks import Files
    from tests.process.harness import Place, Worker

REASONS = {WorkerReason.MODEL_UNSIGNED, WorkerReason.MODEL_SIGNATURE_REFUSED}
LOAD = "/v2/repository/models/net/load"
BEFORE = ("unsigned", "wrongly signed", "re-signed", "rolled back")

pytestmark = pytest.mark.skipif(ON_TRITON, reason="what verifies is the same for all back ends, and Triton takes long to start")


@pytest.fixture(scope="module")
def attacker() -> Attacker:
    return Attacker()


def put(place: Place, folder: str, files: Files) -> str:
    """Make a directory of exactly these files; returns where the model is."""
    shutil.rmtree(place.claim / folder, ignore_errors=True)
    for name, data in files.items():
        place.put(f"{folder}/{name}", data)
    return f"pvc://{CLAIM}/{folder}/model.onnx"


def trusting(uri: str, trust: Trust) -> WorkerConfig:
    source = ModelSource(name="net", version="2", uri=uri, trust=trust)
    return msgspec.structs.replace(a_config(uri), model=source, model_control="explicit")


def answer(worker: Worker) -> float:
    """What the model makes of one."""
    reply = post(worker.port, "/v2/models/net/infer", infer_json([[1.0] * 4]))
    return float(reply.json["outputs"][0]["data"][0])


def test_a_signed_model_is_served_and_its_signer_told(place: Place, attacker: Attacker) -> None:
    worker = place.start(trusting(put(place, "m", attacker.genuine), attacker.trust)).wait_ready()

    told = get(worker.port, "/telemetry").json["model"]["signer"]

    assert (told["name"], told["method"], answer(worker)) == ("release", "Key", 2.0)


@pytest.mark.parametrize("kind", BEFORE)
def test_no_attack_gets_a_worker_ready(place: Place, attacker: Attacker, kind: str) -> None:
    attacks = list(attacker.kinds[kind]())
    assert len(attacks) == COUNT

    ready = 0
    # One after the other would wait for a process that waits for the disk.
    for some in _batches(list(enumerate(attacks)), 4):
        workers = [(number, place.start(trusting(put(place, f"m{number}", files), attacker.trust))) for number, files in some]
        for number, worker in workers:
            if worker.ready_or_ended():
                ready += 1
                continue
            ended = worker.ended()
            assert ended.said.reason in REASONS and ended.code == 2, f"attack {number}: {ended.said}"
    assert ready == 0


def _batches(given: list[tuple[int, Files]], size: int) -> list[list[tuple[int, Files]]]:
    return [given[start : start + size] for start in range(0, len(given), size)]


def test_what_is_changed_after_it_was_verified_is_never_answered_with(place: Place, attacker: Attacker) -> None:
    """The worker answers with what it has verified, whatever becomes of the files, and takes nothing else at a reload."""
    attacks = list(attacker.changed())
    assert len(attacks) == COUNT
    worker = place.start(trusting(put(place, "m", attacker.genuine), attacker.trust)).wait_ready()

    for number, files in enumerate(attacks):
        put(place, "m", files)
        reply = post(worker.port, LOAD, b"")
        assert reply.status != 200 and "ModelSignatureRefused" in reply.error, f"attack {number}: {reply}"
        assert answer(worker) == 2.0

    put(place, "m", attacker.genuine)
    assert post(worker.port, LOAD, b"").status == 200


@COLOCATION
def test_a_colocated_model_is_verified_too_and_under_its_own_name(place: Place) -> None:
    """A model that is loaded for one job stands for no other name, though its bytes are the same."""
    owner, model = KeySigner(), models.slow(width=16, steps=2)
    worker = a_warm_worker(place)
    unsigned = a_colocated_order(place, "other", model)
    signed = msgspec.structs.replace(unsigned, model=msgspec.structs.replace(unsigned.model, trust=owner.trust), attempt=2)
    renamed = msgspec.structs.replace(signed, model=msgspec.structs.replace(signed.model, name="renamed"), attempt=3)

    for order in (signed, unsigned):
        ask(worker, TASKS_PATH, order)
    before, plain = end_of(worker, signed).report, end_of(worker, unsigned).report
    place.put("model.sig", owner.sign("other@1.onnx", {".": model}))
    told = []
    for order in (msgspec.structs.replace(signed, attempt=4), renamed):
        ask(worker, TASKS_PATH, order)
        told.append(end_of(worker, order).report)

    assert before is not None and before.reason is WorkerReason.MODEL_UNSIGNED
    assert plain is not None and plain.outcome == "Succeeded" and plain.model is not None and plain.model.signer is None
    verified, refused = told
    assert verified is not None and verified.model is not None and verified.model.signer is not None
    assert verified.model.signer.name == "release"
    assert refused is not None and refused.reason is WorkerReason.MODEL_SIGNATURE_REFUSED


@pytest.mark.parametrize("kind", BEFORE)
def test_no_attack_is_taken_at_a_reload(shared_place: Place, attacker: Attacker, kind: str) -> None:
    worker = shared_place.start(trusting(put(shared_place, "m", attacker.genuine), attacker.trust)).wait_ready()

    replies = [post(worker.port, LOAD, b"") for files in attacker.kinds[kind]() if put(shared_place, "m", files)]

    assert [reply.status == 200 for reply in replies] == [False] * COUNT
    assert answer(worker) == 2.0
