"""One user's odd job: it gets an answer, and nobody else notices."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.component.kinds import discovery, locate
from tests.component.objects import DIGEST, LATER, a_batch, a_model, a_node, a_pod, a_server, condition, reason, succeeded
from tests.component.operators import Operator, Ward, until
from tests.component.test_refusals import refuse

if TYPE_CHECKING:
    from tests.component.api_server import ApiServer
    from tests.component.kubelet import Kubelet

MEASURED = {
    "digest": DIGEST,
    "accelerator": "cpu",
    "backend": "onnx",
    "batchSize": 1,
    "itemsPerSecond": 0.5,
    "loadSeconds": 1.0,
    "observedTime": "2026-01-01T00:00:00Z",
}
FILES = {"input": {"uri": "pvc://data/in.npy", "items": 2**53}, "output": {"uri": "pvc://data/out"}}
ODD: dict[str, dict[str, Any]] = {
    "a deadline at the end of time": {"deadline": "9999-12-31T23:59:59Z"},
    "a firm deadline at the end of time": {"deadline": "9999-12-31T23:59:59Z", "deadlinePolicy": "Firm"},
    "the zero time of Go": {"deadline": "0001-01-01T00:00:00Z"},
    "a deadline before the first year": {"deadline": "0001-01-01T00:00:00+14:00"},
    "a firm deadline before the first year": {"deadline": "0001-01-01T00:00:00+14:00", "deadlinePolicy": "Firm"},
    "an offset that is none": {"deadline": "2030-01-01T00:00:00+99:99"},
    "more items than seconds until the sun dies": {**FILES, "deadline": LATER},
    "as many, and firm": {**FILES, "deadline": LATER, "deadlinePolicy": "Firm"},
    "as many, without a deadline": FILES,
    "a resource that nobody has": {"resources": {"requests": {"example.com/unicorn": "1"}}},
    "more memory than numbers": {"resources": {"requests": {"memory": "99999999999999999999Pi"}}},
    "a percent-encoded way out of the volume": {**FILES, "input": {"uri": "pvc://data/%2e%2e/secret"}},
    "an address of the node's": {"input": {"uri": "http://169.254.169.254/latest", "digest": DIGEST}, "output": FILES["output"]},
}


@pytest.fixture
async def operator(server: ApiServer, ward: Ward) -> Operator:
    server.create(a_node())
    server.create({**a_model(), "status": {"profiles": [MEASURED]}})
    return await ward.lead(server)


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_job_gets_an_answer_and_others_are_served(
    server: ApiServer, operator: Operator, kubelet: Kubelet, name: str
) -> None:
    server.create(a_batch("odd", **ODD[name]))
    server.create(a_batch("plain"))

    play = asyncio.create_task(kubelet.play("plain"))
    await until(lambda: play.done() or operator.code is not None, "the plain job's end")
    assert operator.code is None, operator.log
    await until(lambda: succeeded(server.get("inferencejobs", "plain")), "the plain job's success")
    await until(lambda: reason(server.get("inferencejobs", "odd")) or "Traceback" in operator.log, "an answer to the odd one")
    assert operator.code is None, operator.log
    assert "Traceback" not in operator.log


async def test_a_job_refused_for_its_deadline_runs_when_the_deadline_is_moved_as_its_message_says(
    server: ApiServer, operator: Operator, kubelet: Kubelet
) -> None:
    server.create(a_batch(deadline="2020-01-01T00:00:00Z", deadlinePolicy="Firm"))
    await until(lambda: reason(server.get("inferencejobs", "job")), "the refusal")
    said = condition(server.get("inferencejobs", "job"), "Ready")
    assert said is not None and "set a later deadline, or Soft to run late" in said["message"]

    server.update("inferencejobs", "job", lambda o: o["spec"].update(deadline=LATER))

    await until(lambda: server.get("inferencejobs", "job")["status"]["observedGeneration"] == 2, "an answer")
    assert reason(server.get("inferencejobs", "job")) == "Starting"
    assert kubelet.seen


async def test_jobs_of_other_namespaces_are_left_alone_where_only_some_are_watched(
    server: ApiServer, ward: Ward, kubelet: Kubelet
) -> None:
    _two_teams(server)
    await ward.lead(server, settings={"namespaces": ["team-a"]})
    server.create(a_batch("theirs", namespace="team-b"))
    server.create(a_batch("ours", namespace="team-a"))

    await kubelet.play("ours", namespace="team-a")

    await until(lambda: succeeded(server.get("inferencejobs", "ours", "team-a")), "our success")
    assert "status" not in server.get("inferencejobs", "theirs", "team-b")


async def test_nothing_is_read_outside_of_the_namespaces_that_are_watched(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    """A Role in each of them is all that the chart gives the operator then."""
    _two_teams(server)
    operator = await ward.lead(server, settings={"namespaces": ["team-a", "team-c"]})
    server.create(a_batch("ours", namespace="team-a"))
    await kubelet.play("ours", namespace="team-a")
    await until(lambda: succeeded(server.get("inferencejobs", "ours", "team-a")), "our success")
    operator.send(signal.SIGTERM)
    assert await operator.ended() == 0

    reached = {place for c in server.journal if discovery(c.path, set()) is None and (place := locate(c.path)) is not None}
    assert {p.namespace for p in reached if p.kind.namespaced} == {"team-a", "team-c", "operator-system"}
    assert {p.kind.plural for p in reached if p.namespace == "operator-system"} == {"leases", "secrets"}
    assert {p.kind.plural for p in reached if not p.kind.namespaced} == {"nodes", "persistentvolumes"}


async def test_a_namespace_that_takes_its_rights_back_stops_nobody_else(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    """Whoever administers a namespace may delete the Role there, and give it back."""
    _two_teams(server)
    refused = server.script("GET", "/namespaces/team-b/", refuse(403, "Forbidden"))
    operator = await ward.lead(server, settings={"namespaces": ["team-a", "team-b"]})
    server.create(a_batch("ours", namespace="team-a"))
    server.create(a_batch("theirs", namespace="team-b"))

    await kubelet.play("ours", namespace="team-a")
    await until(lambda: succeeded(server.get("inferencejobs", "ours", "team-a")), "our success")
    assert "pods of namespace team-b can't be listed" in operator.log
    assert "status" not in server.get("inferencejobs", "theirs", "team-b")

    server.scripts.remove(refused)
    await kubelet.play("theirs", namespace="team-b")
    await until(lambda: succeeded(server.get("inferencejobs", "theirs", "team-b")), "their success")
    assert operator.code is None


async def test_room_taken_in_other_namespaces_is_counted_where_only_some_are_watched(
    server: ApiServer, ward: Ward, kubelet: Kubelet
) -> None:
    _two_teams(server, cpu="1")
    server.create(a_pod("theirs", cpu="1", namespace="team-b"))
    await ward.lead(server, settings={"namespaces": ["team-a"], "readAllPods": True})
    server.create(a_batch("ours", namespace="team-a"))

    await until(lambda: reason(server.get("inferencejobs", "ours", "team-a")), "an answer")

    assert reason(server.get("inferencejobs", "ours", "team-a")) == "NoFreeCapacity"


async def test_a_job_without_input_serves_with_a_service_in_front(server: ApiServer, operator: Operator, kubelet: Kubelet) -> None:
    server.create(a_server(replicas=2))
    for number in (1, 2):
        kubelet.run(await kubelet.worker("job", number))
    await until(lambda: reason(server.get("inferencejobs", "job")) == "Serving", "the service")

    status = server.get("inferencejobs", "job")["status"]
    assert status["selector"] == f"inference.myorg/job-uid={server.get('inferencejobs', 'job')['metadata']['uid']}"
    assert "selector" not in server.get("services", "job")["spec"]
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)


def _two_teams(server: ApiServer, **node: Any) -> None:
    server.create(a_node(**node))
    for team in ("team-a", "team-b"):
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
        server.create(a_model(namespace=team))
