"""The word follows the store: said once, again when something changes, and with weights once workers have been measured."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from inference_operator.gateway import messages
from inference_operator.gateway.controller import Gateway
from inference_operator.settings import GatewaySettings
from inference_operator.state.objects import Key
from inference_operator.state.store import Store
from inference_operator.tenants import Tenants, Tokens
from inference_protocol.messages import Telemetry
from tests.builders import a_job, a_node, a_pod
from tests.unit.autoscaling.metricsapi.kube import FakeKube
from tests.unit.autoscaling.test_metrics import Clock

JOB = a_job(serve=True)
ENDPOINTS = "http:default/m@1"


@pytest.fixture
def store() -> Store:
    made = Store()
    made.put_job(JOB)
    for number in (1, 2):
        made.put_pod(replace(a_pod(JOB, number), uid=f"pod-{number}", address=f"10.0.0.{number}"))
    return made


def a_gateway(store: Store, clock: Clock) -> Gateway:
    made = Gateway(store, clock, GatewaySettings(enabled=True), FakeKube())
    made._look(first=True)
    return made


def weights(gateway: Gateway) -> list[int]:
    resources = gateway._word.resources
    assert resources is not None
    told: Any = messages.unpacked(messages.ENDPOINTS, resources[messages.ENDPOINTS][ENDPOINTS].data)
    (locality,) = told["endpoints"]
    return [one["load_balancing_weight"] for one in locality["lb_endpoints"]]


def takes(row_seconds: float | None) -> Telemetry:
    return Telemetry(ready=True, draining=False, row_seconds=row_seconds)


def test_nothing_is_said_again_while_nothing_changes(store: Store) -> None:
    gateway = a_gateway(store, Clock())
    before = gateway._word.resources

    gateway.round({"pod-1": takes(0.01)})
    gateway._look()

    assert gateway._word.resources is before


def test_a_slow_worker_has_less_weight_once_it_has_been_measured(store: Store) -> None:
    clock = Clock()
    gateway = a_gateway(store, clock)
    assert weights(gateway) == [1000, 1000]

    for row_seconds in (0.020, 0.020, 0.500, 0.020):
        gateway.round({"pod-1": takes(0.010), "pod-2": takes(row_seconds)})
        clock.seconds += 4.0
    gateway._look()

    assert weights(gateway) == [1000, 250]


def test_what_is_known_of_a_worker_goes_with_it(store: Store) -> None:
    gateway = a_gateway(store, Clock())
    gateway.round({"pod-1": takes(0.01)})

    gateway.round({})

    assert not gateway._heard


def test_an_envoy_is_in_the_zone_of_its_pods_node(store: Store) -> None:
    node = replace(a_node(), labels={"topology.kubernetes.io/zone": "west"})
    store.nodes[node.name] = node
    store.put_pod(replace(a_pod(JOB, 3), key=Key("system", "gateway-1"), node=node.name, worker=None))
    gateway = Gateway(store, Clock(), GatewaySettings(enabled=True), FakeKube(), namespace="system")

    assert [gateway._zone_of(name) for name in ("gateway-1", "unknown", "")] == ["west", "", ""]


def a_key(kid: str) -> str:
    key = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
    return json.dumps({"keys": [{**key, "kid": kid}]})


def test_keys_of_a_tokens_issuer_are_taken_up_when_their_file_is_replaced(store: Store, tmp_path: Path) -> None:
    """A key that is taken back would count until the next restart; a file that is gone for a moment takes none away."""
    file = tmp_path / "jwks.json"
    tokens = Tokens("https://issuer", ("gateway",), key_set_file=str(file))
    settings = GatewaySettings(enabled=True, tenants=Tenants(enabled=True, tokens=tokens))
    gateway = Gateway(store, Clock(), settings, FakeKube())

    def listeners() -> str:
        gateway._look()
        assert gateway._word.resources is not None
        return gateway._word.resources[messages.LISTENER]["door"].data.decode(errors="replace")

    file.write_text(a_key("first"))
    assert '"first"' in listeners()
    file.write_text(a_key("second"))
    assert '"second"' in listeners() and '"first"' not in listeners()
    file.unlink()
    assert '"second"' in listeners()
