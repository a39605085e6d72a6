"""Who is awake, and who wakes whom: said once, through the API server."""

import asyncio
from dataclasses import replace
from typing import Any

from inference_operator.api.conditions import Condition, ConditionType, Reason, Truth
from inference_operator.api.gateway import ServeGateway
from inference_operator.api.job import Serve
from inference_operator.api.job_status import InferenceJobStatus
from inference_operator.errors import RetryableError
from inference_operator.gateway.idle import Activity
from inference_operator.gateway.snapshot import Backend, Service
from inference_operator.gateway.waker import Waker
from inference_operator.state.store import Store
from inference_protocol.messages import Telemetry
from tests.builders import NOW, a_job, a_pod, whole
from tests.unit.autoscaling.metricsapi.kube import FakeKube
from tests.unit.autoscaling.test_metrics import Clock

ASLEEP = whole(NOW)
JOB = a_job(serve=Serve(min_replicas=0, gateway=ServeGateway(idle_seconds=5)), status=InferenceJobStatus(asleep_since=ASLEEP))
SERVICE = Service("default", "m", "1", True, (), ServeGateway(idle_seconds=5), (JOB.key,))


class Kube(FakeKube):
    """Remembers what is merged, and fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.merged: list[tuple[str, Any]] = []
        self.failures = failures

    async def merge(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise RetryableError("busy")
        self.merged.append((path, body))
        return {}


def a_waker(kube: Kube, clock: Clock | None = None) -> Waker:
    store = Store()
    store.put_job(JOB)
    return Waker(store, kube, clock or Clock())


def told(total: int = 0, **more: Any) -> Telemetry:
    return Telemetry(ready=True, draining=False, requests_total=total, **more)


async def test_a_burst_says_once_that_a_request_has_come() -> None:
    kube = Kube()
    waker = a_waker(kube)
    await asyncio.gather(*(waker.wake(SERVICE) for _ in range(50)))
    await waker.wake(SERVICE)

    ((path, body),) = kube.merged
    assert path.endswith("/namespaces/default/inferencejobs/job/status")
    assert body == {"status": {"wokenFrom": "2026-04-02T12:00:00Z"}}


async def test_what_the_api_server_refuses_is_said_again_by_whoever_waits() -> None:
    kube = Kube(failures=1)
    waker = a_waker(kube)
    await waker.wake(SERVICE)
    assert not kube.merged
    await waker.wake(SERVICE)
    assert len(kube.merged) == 1


async def test_a_start_takes_what_the_last_one_took() -> None:
    clock = Clock()
    waker = a_waker(Kube(), clock)
    assert waker.outlook(SERVICE).expected_seconds is None
    await waker.wake(SERVICE)
    clock.seconds += 8
    waker.look([replace(SERVICE, backends=(Backend("10.0.0.1", "a"),))])
    assert waker.outlook(SERVICE).expected_seconds == 8
    await waker.wake(SERVICE)
    clock.seconds += 3
    assert waker.outlook(SERVICE).expected_seconds == 5


async def test_a_worker_that_finds_no_place_is_a_problem_once_the_service_is_awake() -> None:
    waker = a_waker(Kube())
    placed = Condition(
        type=ConditionType.PLACED, status=Truth.FALSE, reason=Reason.NO_NODE_FITS.value, message="no node", last_transition_time=NOW
    )
    coming = replace(placed, reason=Reason.PROVISIONING.value)
    for status, problem in (
        (InferenceJobStatus(conditions=[placed]), "no node"),
        # A node is on its way: its worker will come.
        (InferenceJobStatus(conditions=[coming]), None),
        (InferenceJobStatus(conditions=[placed], asleep_since=ASLEEP), None),
    ):
        waker._store.put_job(replace(JOB, status=status))
        assert waker.outlook(SERVICE).problem == problem


def test_a_worker_is_busy_while_requests_come_or_are_under_way_and_while_nobody_knows() -> None:
    activity = Activity()

    assert activity.busy({"a": told(5)}) == {"a"}
    assert activity.busy({"a": told(5)}) == set()
    assert activity.busy({"a": told(6)}) == {"a"}
    assert activity.busy({"a": told(6, in_flight=1)}) == {"a"}
    assert activity.busy({"a": None}) == {"a"}
    assert activity.busy({"a": told(6)}) == {"a"}


def test_a_job_without_workers_has_no_last_request() -> None:
    waker, pod = a_waker(Kube()), a_pod(JOB, 1)
    waker._store.put_pod(pod)
    waker.note({pod.uid: told(1)})
    assert set(waker._store.requested) == {JOB.uid}
    waker.note({})
    assert not waker._store.requested
