"""Kueue comes and goes under the operator: jobs are told, what runs goes on, and nothing is asked without end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.component.objects import a_batch, a_model, a_node, condition, reason, succeeded
from tests.component.operators import until

if TYPE_CHECKING:
    from tests.component.api_server import ApiServer
    from tests.component.kinds import Raw
    from tests.component.kubelet import Kubelet
    from tests.component.operators import Operator, Ward

GROUP = "kueue.x-k8s.io"
SETTINGS: dict[str, Any] = {"kueue": {"enabled": True}}
LOOK: dict[str, Any] = {"inference_operator.controllers.kueue:_LOOK_SECONDS": 0.1}
SINCE = "2026-01-01T00:00:00Z"


async def lead(server: ApiServer, ward: Ward, constants: dict[str, Any] | None = None, **settings: Any) -> Operator:
    server.create(a_node())
    server.create(a_model())
    operator = ward.start(server.url, settings={**SETTINGS, **settings}, constants=constants)
    await operator.says("leading as")
    return operator


def admit(workload: Raw) -> None:
    conditions = [{"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": SINCE} for kind in (
        "QuotaReserved", "Admitted")]  # fmt: skip
    assignments = [{"name": "worker", "flavors": {"cpu": "any"}}]
    workload["status"] = {"admission": {"clusterQueue": "all", "podSetAssignments": assignments}, "conditions": conditions}


def flavor(name: str = "any") -> Raw:
    return {"apiVersion": f"{GROUP}/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {}}


async def test_a_cluster_without_kueue_tells_the_job_and_serves_the_others(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    server.absent_groups.add(GROUP)
    operator = await lead(server, ward)
    server.create(a_batch("queued", queueName="team"))
    server.create(a_batch("plain"))
    await kubelet.play("plain")
    await until(lambda: succeeded(server.get("inferencejobs", "plain")), "the plain job's success")
    await until(lambda: reason(server.get("inferencejobs", "queued")) == "QueueUnavailable", "the word to the queued one")

    found = condition(server.get("inferencejobs", "queued"), "Accepted")
    assert found is not None and "install Kueue, or leave queueName out" in found["message"]
    assert operator.code is None
    # One look at the start; the next is far away.
    assert len(server.calls("GET", GROUP)) == 1
    assert len(server.calls("PATCH", "/inferencejobs/queued/status")) == 1
    assert "Traceback" not in operator.log


async def test_a_kueue_that_comes_later_is_found(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    server.absent_groups.add(GROUP)
    await lead(server, ward, LOOK)
    server.create(a_batch(queueName="team"))
    await until(lambda: reason(server.get("inferencejobs", "job")) == "QueueUnavailable", "the word to the job")

    server.absent_groups.clear()
    server.create(flavor())
    (workload,) = await until(lambda: server.all("workloads"), "the Workload")
    await until(lambda: reason(server.get("inferencejobs", "job")) == "WaitingForQuota", "the wait for quota")
    await until(lambda: server.streams("workloads"), "the watch")
    assert not server.all("pods")
    server.update("workloads", workload["metadata"]["name"], admit)
    await kubelet.play("job")
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    (workload,) = server.all("workloads")
    kinds = await until(lambda: _true(server) if "Finished" in _true(server) else None, "the end of the Workload")
    assert {"QuotaReserved", "Admitted", "Finished"} <= kinds


def _true(server: ApiServer) -> set[str]:
    (workload,) = server.all("workloads")
    return {one["type"] for one in workload["status"]["conditions"] if one["status"] == "True"}


async def test_what_runs_goes_on_when_kueue_is_removed_and_the_operator_lives(
    server: ApiServer, ward: Ward, kubelet: Kubelet
) -> None:
    operator = await lead(server, ward, LOOK, resyncSeconds=0.2)
    server.create(flavor())
    server.create(a_batch("runs", queueName="team"))
    (workload,) = await until(lambda: server.all("workloads"), "the Workload")
    await until(lambda: server.streams("workloads"), "the watch")
    server.update("workloads", workload["metadata"]["name"], admit)
    pod = await kubelet.worker("runs")
    kubelet.run(pod)
    await until(lambda: reason(server.get("inferencejobs", "runs")) == "Running", "the run")

    server.absent_groups.add(GROUP)
    for plural in ("workloads", "resourceflavors"):
        server.cut(plural)
    await operator.says("serves no kueue.x-k8s.io/v1beta2")
    await until(lambda: reason(server.get("inferencejobs", "runs"), "Accepted") == "QueueUnavailable", "the word to the job")
    assert server.has("pods", pod["metadata"]["name"])
    assert "deletionTimestamp" not in server.get("pods", pod["metadata"]["name"])["metadata"]

    server.absent_groups.clear()
    await until(lambda: server.streams("workloads"), "the next watch")
    await until(lambda: reason(server.get("inferencejobs", "runs")) == "Running", "the run as before")
    assert operator.code is None
    assert "Traceback" not in operator.log


@pytest.mark.parametrize("settings", [{}, SETTINGS])
async def test_an_operator_that_asks_no_kueue_asks_it_nothing(server: ApiServer, ward: Ward, settings: dict[str, Any]) -> None:
    server.create(a_node())
    operator = ward.start(server.url, settings=settings)
    await operator.says("leading as")
    server.create(a_model())
    server.create(a_batch(queueName="team"))
    await until(lambda: reason(server.get("inferencejobs", "job")), "an answer")

    assert bool(server.calls("GET", GROUP)) == bool(settings)
