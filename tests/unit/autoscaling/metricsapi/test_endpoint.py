"""Where the Service of the metrics API leads: to whoever leads, whatever stood there."""

from __future__ import annotations

import pytest

from inference_operator.autoscaling.metricsapi.endpoint import LeaderEndpoint, Replica
from tests.unit.autoscaling.metricsapi.kube import FakeKube

SERVICE = "/api/v1/namespaces/system/services/metrics"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/system/endpointslices"


@pytest.fixture
def kube() -> FakeKube:
    made = FakeKube()
    made.put(SERVICE, {"metadata": {"name": "metrics"}})
    return made


async def led_to(kube: FakeKube, pod: str, address: str) -> None:
    await LeaderEndpoint(kube, namespace="system", service="metrics", port=8443, replica=Replica(pod, address)).once()


async def test_the_service_leads_to_the_leader_and_to_the_next_one_after_it(kube: FakeKube) -> None:
    for number in "12":
        await led_to(kube, f"operator-{number}", f"10.0.0.{number}")

        found = kube.objects[f"{SLICES}/metrics-ipv4"]
        assert [one["addresses"] for one in found["endpoints"]] == [[f"10.0.0.{number}"]]
        assert found["ports"][0] | {"appProtocol": ""} == {
            "name": "custom-metrics",
            "port": 8443,
            "protocol": "TCP",
            "appProtocol": "",
        }
    assert found["metadata"]["ownerReferences"][0]["uid"] == kube.objects[SERVICE]["metadata"]["uid"]


async def test_an_address_of_the_other_family_has_a_slice_of_its_own(kube: FakeKube) -> None:
    await led_to(kube, "operator-1", "fd00::1")

    assert kube.objects[f"{SLICES}/metrics-ipv6"]["addressType"] == "IPv6"
