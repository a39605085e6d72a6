"""The last words of a worker: always one whole JSON object that the kubelet keeps."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_protocol.messages import (
    INLINE_OUTPUT_LIMIT_BYTES,
    Latency,
    ModelFacts,
    Progress,
    TerminationReport,
    WorkerConfig,
    decode_report,
    encode,
    encode_report,
)
from inference_protocol.reasons import PERMANENT, WorkerReason
from inference_worker.errors import WorkerError
from tests.process.harness import REPOSITORY, a_config
from tests.unit.worker.conftest import STEADY

KUBELET_LIMIT_BYTES = 4096
FACTS = ModelFacts("sha256:" + "f" * 64, "CUDAExecutionProvider", 12.25, 0.75, 65536, 1 << 40, 123456.789)


@given(st.text(max_size=6000))
@STEADY
def test_any_message_fits_and_comes_back(message: str) -> None:
    data = encode_report(TerminationReport("Failed", message, reason=WorkerReason.INTERNAL, model=FACTS))

    assert len(data) < KUBELET_LIMIT_BYTES
    back = decode_report(data.decode())
    assert back is not None and back.reason is WorkerReason.INTERNAL
    assert back.message == message or back.message.endswith(" […]")


@pytest.mark.parametrize("character", list('aé✓😀"\n\x01'))
def test_long_messages_lose_their_end_and_keep_their_beginning(character: str) -> None:
    data = encode_report(TerminationReport("Failed", "begin " + character * 100_000))

    back = decode_report(data.decode())
    assert len(data) < KUBELET_LIMIT_BYTES and back is not None
    assert back.message.startswith("begin ") and back.message.endswith("[…]")


SHORTEN = f"""
import json, sys
sys.path[:0] = [{str(REPOSITORY / "protocol")!r}]
from inference_protocol.messages import *
data = encode_report(TerminationReport("Succeeded", "done", output=sys.stdin.read()))
sys.stdout.buffer.write(data)
"""


def test_inline_answers_full_of_quotes_still_end_in_a_whole_report() -> None:
    output = json.dumps({"y": '"' * ((INLINE_OUTPUT_LIMIT_BYTES - 10) // 2)}) + "\n"
    assert len(output) <= INLINE_OUTPUT_LIMIT_BYTES
    child = subprocess.Popen([sys.executable, "-c", SHORTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    try:
        data, _ = child.communicate(output.encode(), timeout=60)
    finally:
        child.kill()
        child.communicate()

    assert len(data) < KUBELET_LIMIT_BYTES
    assert decode_report(data.decode()) is not None


def test_a_full_report_comes_back_as_it_was() -> None:
    report = TerminationReport(
        "Succeeded",
        "30 items are answered",
        model=FACTS,
        progress=Progress(total=30, completed=30, resumed=7),
        latency=Latency(1.5, 2.5, 3.5, 30),
        output='{"y": [1, 2]}\n',
    )

    assert decode_report(encode_report(report).decode()) == report


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", "OOMKilled", '{"outcome": "Great", "message": ""}', '{"outcome": "Failed"}']
)
def test_what_is_no_report_is_none(text: str) -> None:
    assert decode_report(text) is None


def test_a_report_of_a_newer_worker_is_read() -> None:
    report = decode_report('{"outcome": "Drained", "message": "m", "reason": "Terminated", "news": {"a": 1}}')

    assert report is not None and report.reason is WorkerReason.TERMINATED


def test_a_configuration_survives_the_environment() -> None:
    config = a_config("pvc://data/größe.onnx", attempt=3, batch_size=8)

    assert json.loads(encode(config))["model"]["uri"] == "pvc://data/größe.onnx"
    assert msgspec.json.decode(encode(config), type=WorkerConfig) == config


@pytest.mark.parametrize("reason", WorkerReason)
def test_every_reason_says_whether_another_attempt_helps(reason: WorkerReason) -> None:
    assert WorkerError(reason, "m").permanent is (reason in PERMANENT)
    assert reason.value[0].isupper() and reason.value.isalpha()
