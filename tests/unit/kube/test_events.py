"""An event's manifest, in the form of events.k8s.io/v1 and within its limits."""

import asyncio
from datetime import timedelta
from typing import Any, cast

from inference_operator.api.events import EventReason, EventType
from inference_operator.kube.events import EventRecorder, event_manifest
from inference_operator.kube.ports import KubeClient
from inference_operator.state.objects import Key
from tests.builders import NOW
from tests.clock import Clock

JOB = Key("demo", "digits")


def an_event(**changes: Any) -> dict[str, Any]:
    given = {
        "event_type": EventType.WARNING,
        "reason": EventReason.ATTEMPT_FAILED,
        "message": "attempt 1: OutOfMemory",
        "occasion": "attempt 1",
        "now": NOW,
        "reporter": "operator-0",
    }
    return event_manifest(JOB, "uid-1", **{**given, **changes})


def test_an_event_is_about_its_job() -> None:
    event = an_event(event_type=EventType.NORMAL, reason=EventReason.PLACED, message="cpu on node cpu-1")

    assert event["metadata"]["namespace"] == "demo"
    assert event["regarding"] == {
        "apiVersion": "inference.myorg/v1",
        "kind": "InferenceJob",
        "namespace": "demo",
        "name": "digits",
        "uid": "uid-1",
    }
    assert (event["type"], event["reason"], event["note"]) == ("Normal", "Placed", "cpu on node cpu-1")
    assert (event["reportingController"], event["reportingInstance"]) == ("inference.myorg/operator", "operator-0")
    assert event["eventTime"] == "2026-04-02T12:00:00.654321Z"


def test_telling_twice_is_telling_once() -> None:
    later = an_event(now=NOW + timedelta(hours=1), reporter="operator-1")

    assert an_event()["metadata"]["name"] == later["metadata"]["name"]
    assert an_event()["metadata"]["name"] != an_event(message="attempt 2: OutOfMemory")["metadata"]["name"]
    assert an_event()["metadata"]["name"] != an_event(occasion="attempt 2")["metadata"]["name"]


def test_what_is_too_long_is_cut_to_what_the_api_takes() -> None:
    event = an_event(message="x" * 5000, reporter="y" * 500)

    assert (len(event["note"]), len(event["reportingInstance"])) == (1000, 128)


class Refusing:
    """A client whose every write ends in an error that nobody foresaw."""

    def __init__(self) -> None:
        self.asked = 0

    async def create(self, path: str, manifest: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        raise ValueError("an answer that is no JSON")


async def test_an_error_that_nobody_foresaw_costs_one_event_and_no_more() -> None:
    kube = Refusing()
    recorder = EventRecorder(cast(KubeClient, kube), Clock(), reporter="operator-0")
    writing = asyncio.create_task(recorder.run())
    for attempt in range(3):
        recorder.record(JOB, "uid-1", event_type=EventType.WARNING, reason="x", message="y", occasion=str(attempt))

    async with asyncio.timeout(5):
        while kube.asked < 3:
            await asyncio.sleep(0)

    assert not writing.done()
    writing.cancel()
