"""A worker's word is not trusted: what breaks the bounds of its telemetry is not taken."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_protocol.messages import (
    MESSAGE_LENGTH,
    MOST_TASKS,
    TaskState,
    Telemetry,
    TerminationReport,
    cut,
    decode_report,
    encode,
)
from inference_protocol.sketch import LatencySketch
from inference_worker.tasks import QUEUE_LIMIT, Errand
from tests.unit.warmpools.test_tasks import ORDER

GOOD: dict[str, Any] = {"ready": True, "draining": False, "sketch": {"-3": 2}, "busySeconds": 1.5, "queued": 4, "someday": 1}
TASK: dict[str, Any] = {"uid": "u", "attempt": 1, "revision": "r", "state": "Running"}


def test_what_keeps_them_is_read() -> None:
    told = msgspec.json.decode(msgspec.json.encode(GOOD), type=Telemetry)

    assert (told.sketch, told.busy_seconds, told.queued) == ({-3: 2}, 1.5, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"sketch": {"-3": -1}},
        {"sketch": {"-3": 2**60}},
        {"sketch": {"9999": 1}},
        {"sketch": {str(i): 1 for i in range(-1024, 1025)}},
        {"sketch": {"x": 1}},
        {"busySeconds": -1},
        {"busySeconds": 1e300},
        {"queued": -1},
        {"inFlight": 2**60},
        {"requestsTotal": -5},
        {"failedTotal": 0.5},
        {"device": {"uuid": "GPU-1", "utilization": 1.1}},
        {"device": {"uuid": "GPU-1", "energyJoules": -1}},
        {"device": {"uuid": "GPU-1", "ageSeconds": -1}},
        {"device": {"uuid": "G" * 200}},
        {"problem": "x" * 513},
        {"tasks": [TASK] * 129},
        {"tasks": [TASK | {"uid": "u" * 129}]},
        {"tasks": [TASK | {"revision": "r" * 129}]},
        {"tasks": [TASK | {"attempt": -1}]},
        {"tasks": [TASK | {"report": {"outcome": "Failed", "message": "x" * 4001}}]},
        {"tasks": [TASK | {"report": {"outcome": "Failed", "message": "", "output": "x" * 4097}}]},
        {"colocated": ["sha256:" + "0" * 64] * 1025},
        {"colocated": ["sha256:" + "0" * 64 + "\n"]},
    ],
    ids=lambda change: str(change)[:60],
)
def test_what_breaks_them_is_not(change: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(GOOD | change), type=Telemetry)


def test_the_largest_sketch_that_a_worker_can_make_keeps_them() -> None:
    sketch = LatencySketch()
    seconds = 1e-7
    while seconds < 1e5:
        sketch.record(seconds)
        seconds *= 1.005
    told = Telemetry(ready=True, draining=False, sketch=sketch.counts)

    assert msgspec.json.decode(encode(told), type=Telemetry) == told
    assert len(sketch.counts) > 1000


def test_no_record_of_a_worker_has_a_text_or_a_list_without_bound() -> None:
    unbounded = set()
    for record in (Telemetry, TerminationReport, TaskState):
        schemas, components = msgspec.json.schema_components([record])
        del schemas
        unbounded |= {f"{name}.{field}" for name, schema in components.items() for field in _unbounded(schema)}

    assert unbounded == set()


def _unbounded(schema: dict[str, Any]) -> list[str]:
    bounds = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
    return [
        field
        for field, told in schema.get("properties", {}).items()
        for kind in (told, *told.get("anyOf", ()))
        if (bound := bounds.get(kind.get("type", ""))) is not None and bound not in kind
    ]


def test_all_tasks_that_a_worker_takes_are_told() -> None:
    assert QUEUE_LIMIT + 1 <= MOST_TASKS


@given(st.text(), st.integers(4, 20))
def test_a_text_is_cut_to_its_length(text: str, length: int) -> None:
    found = cut(text, length)

    assert len(found) <= length
    assert found == text or (found.endswith(" […]") and text.startswith(found.removesuffix(" […]")))


def test_a_worker_cuts_what_it_says_of_a_task() -> None:
    errand = Errand(ORDER)
    errand.start()
    errand.end(TerminationReport("Failed", "é" * 10_000))

    told = msgspec.json.decode(encode(errand.state), type=TaskState)
    assert told.report is not None
    assert len(told.report.message) == MESSAGE_LENGTH


def test_a_report_that_is_nested_without_end_is_none() -> None:
    assert decode_report('{"outcome":"Failed","message":"","x":' + "[" * 2000 + "]" * 2000 + "}") is None
