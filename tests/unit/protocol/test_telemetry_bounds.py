"""A worker's word is not trusted: what breaks the bounds of its telemetry is not taken."""

from typing import Any

import msgspec
import pytest

from inference_protocol.messages import Telemetry, encode
from inference_protocol.sketch import LatencySketch

GOOD: dict[str, Any] = {"ready": True, "draining": False, "sketch": {"-3": 2}, "busySeconds": 1.5, "queued": 4, "someday": 1}


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
    ],
    ids=str,
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
