"""Namespaces beside each other: what one may not do is told in its statuses, and costs the others nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.component.objects import a_batch, a_model, a_node, a_server, condition, reason
from tests.component.operators import until

if TYPE_CHECKING:
    from tests.component.api_server import ApiServer
    from tests.component.kubelet import Kubelet
    from tests.component.operators import Ward

LIMITS: dict[str, Any] = {"default": {"maxReplicas": 2}, "overrides": {"greedy": {"maxPriority": 10, "maxDevices": {"cpu": 1}}}}


async def a_cluster(server: ApiServer, ward: Ward, *, cpu: str = "64", limits: dict[str, Any] | None = None) -> None:
    server.create(a_node(cpu=cpu))
    for namespace in ("greedy", "modest"):
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        server.create(a_model(namespace=namespace))
    await ward.lead(server, settings={"namespaceLimits": limits or {}})


def placed(server: ApiServer, name: str, namespace: str) -> dict[str, Any]:
    return condition(server.get("inferencejobs", name, namespace), "Placed") or {}


async def test_who_is_at_the_cap_of_its_namespace_is_told_the_cap_what_is_in_use_and_what_to_do(
    server: ApiServer, ward: Ward, kubelet: Kubelet
) -> None:
    await a_cluster(server, ward, limits=LIMITS)
    server.create(a_batch("first", namespace="greedy", priority=1000))
    await kubelet.worker("first")
    server.create(a_batch("second", namespace="greedy", priority=1000))
    server.create(a_batch("other", namespace="modest"))
    await until(lambda: placed(server, "second", "greedy") and placed(server, "other", "modest"), "both answers")

    told = placed(server, "second", "greedy")
    assert (told["status"], told["reason"]) == ("False", "NamespaceCapped")
    assert "cpu: namespace greedy has 1 of at most 1 cpu workers (maxDevices)" in told["message"]
    assert "wait for one to end, end one, or ask the administrator to raise the cap in namespaceLimits" in told["message"]
    accepted = condition(server.get("inferencejobs", "second", "greedy"), "Accepted")
    assert accepted is not None and (accepted["status"], accepted["reason"]) == ("True", "PriorityLimited")
    assert placed(server, "other", "modest")["status"] == "True"


async def test_a_service_has_as_many_replicas_as_its_namespace_may(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    await a_cluster(server, ward, limits=LIMITS)
    server.create(a_server("service", namespace="modest", replicas=5, serve={"maxReplicas": 5}))
    for number in (1, 2):
        kubelet.run(await kubelet.worker("service", number))
    await until(lambda: reason(server.get("inferencejobs", "service", "modest")) == "NamespaceCapped", "the cap")

    assert "namespace modest has 2 of at most 2 workers (maxReplicas)" in placed(server, "service", "modest")["message"]


async def test_who_waits_beside_another_namespace_is_told_the_shares(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    await a_cluster(server, ward, cpu="1")
    for number in range(4):
        server.create(a_batch(f"job-{number}", namespace="greedy"))
    for number in range(2):
        await kubelet.worker(f"job-{number}")
    server.create(a_batch("only", namespace="modest"))
    await until(lambda: reason(server.get("inferencejobs", "only", "modest")), "an answer")

    told = placed(server, "only", "modest")
    assert (told["status"], told["reason"]) == ("False", "NoFreeCapacity")
    assert "namespace modest has 0% of" in told["message"] and "its fair share is 50%" in told["message"]


async def test_limits_that_can_not_be_used_end_the_operator_at_its_start_with_their_place(server: ApiServer, ward: Ward) -> None:
    operator = ward.start(server.url, settings={"namespaceLimits": {"overrides": {"team-*": {"maxReplicas": 1}}}})

    assert await operator.ended() != 0
    assert "namespaceLimits.overrides.team-*" in operator.log
