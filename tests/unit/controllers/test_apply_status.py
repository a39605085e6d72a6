"""Writing a status: what others have written into it goes, and a write that changes nothing is not tried again at once."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.job_status import InferenceJobStatus
from inference_operator.controllers.apply import Applier, TaskClient, surplus
from inference_operator.errors import OperatorError
from inference_operator.kube.events import EventRecorder
from inference_operator.runtime.clock import SystemClock
from inference_operator.state.objects import Job
from inference_operator.state.parse import status_document
from inference_operator.state.request import job_request
from inference_operator.state.store import Store
from inference_operator.workers.actions import WriteStatus
from tests.builders import a_job
from tests.unit.autoscaling.metricsapi.kube import FakeKube
from tests.unit.state.raw import raw_job

Raw = dict[str, Any]
PATH = "/apis/inference.myorg/v1/namespaces/default/inferencejobs/job/status"
JOB = a_job()
THEIRS = {"deadline": {"time": "2100-01-01T00:00:00Z", "outlook": "OnTime"}}


class Server(FakeKube):
    """Holds one job, and merges what is applied, as an API server does for whoever is not the only owner."""

    def __init__(self, status: Raw) -> None:
        super().__init__()
        self.job: Raw = raw_job(status=status)
        self.job["metadata"] |= {"resourceVersion": "1", "uid": JOB.uid}
        self.merged: list[Raw] = []

    async def apply(self, path: str, body: Raw) -> Raw:
        return self._become({**self.job["status"], **body["status"]})

    async def merge(self, path: str, body: Raw) -> Raw:
        self.merged.append(body)
        assert path == PATH
        return self._become(
            {name: value for name, value in self.job["status"].items() if body["status"].get(name, value) is not None}
        )

    def _become(self, status: Raw) -> Raw:
        if status != self.job["status"]:
            version = str(int(self.job["metadata"]["resourceVersion"]) + 1)
            self.job = {**self.job, "status": status, "metadata": {**self.job["metadata"], "resourceVersion": version}}
        return self.job


async def write(server: Server, status: InferenceJobStatus) -> Job | None:
    store = Store()
    applier = Applier(server, store, Mock(spec=TaskClient), Mock(spec=EventRecorder), SystemClock())
    await applier.apply(job_request(JOB.key), (WriteStatus(JOB.key, JOB.uid, status, server.job["metadata"]["resourceVersion"]),))
    return store.jobs.get(JOB.key)


async def test_what_others_have_written_goes_with_the_write_that_changes_nothing_else() -> None:
    wanted = InferenceJobStatus(phase="Waiting", attempts=1)
    server = Server({**status_document(wanted), **THEIRS})
    known = await write(server, wanted)

    assert known is not None and known.status == wanted
    assert server.merged == [{"metadata": {"resourceVersion": "1"}, "status": {"deadline": None}}]


async def test_a_write_that_changes_something_is_one_call() -> None:
    server = Server({**status_document(InferenceJobStatus(attempts=1)), **THEIRS})
    known = await write(server, InferenceJobStatus(attempts=2))

    assert known is not None and known.status.attempts == 2
    assert server.merged == []


async def test_a_write_in_vain_is_an_error_and_so_waits_longer_each_time() -> None:
    wanted = InferenceJobStatus(attempts=1)
    with pytest.raises(OperatorError, match="stays as it is"):
        await write(Server(status_document(wanted)), replace(wanted))


NESTED = st.recursive(st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner), max_leaves=8)
DOCUMENTS = st.dictionaries(st.sampled_from("abc"), NESTED)


def merged(document: Raw, patch: Raw) -> Raw:
    """RFC 7386."""
    result = dict(document)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result[name], value)
    return result


@given(actual=DOCUMENTS, wanted=DOCUMENTS)
def test_a_surplus_leaves_nothing_that_is_not_wanted_and_takes_nothing_that_is(actual: Raw, wanted: Raw) -> None:
    left = merged(actual, surplus(actual, wanted))

    assert surplus(left, wanted) == {}
    assert {name: value for name, value in left.items() if not isinstance(value, dict)} == {
        name: value for name, value in actual.items() if name in wanted and not isinstance(value, dict)
    }
