"""How many callers may be connected by TLS: each takes memory for good, so it is the memory that says."""

import msgspec
import pytest

from inference_protocol.messages import ServingTls
from inference_worker.frontends.supervisor import FRONTENDS_VARIABLE
from inference_worker.serve.budget import Budget
from inference_worker.serve.listeners import Ports, _frontends_for, _most_connections
from inference_worker.serve.tls import TLS_CONNECTION_BYTES
from tests.unit.worker.states import an_unloaded_worker_state


@pytest.mark.parametrize(("mebibytes", "most"), [(128, 2978), (1024, 20_000)])
def test_idle_callers_by_tls_can_not_take_more_memory_than_bodies_may(mebibytes: int, most: int) -> None:
    state = an_unloaded_worker_state()
    state.config = msgspec.structs.replace(state.config, serving_tls=ServingTls(own_certificate=True))
    found = _most_connections(state, Ports(), Budget(mebibytes << 20))

    assert found == most
    assert found * TLS_CONNECTION_BYTES <= mebibytes << 20


def test_callers_without_tls_are_as_many_as_ever() -> None:
    assert _most_connections(an_unloaded_worker_state(), Ports(), Budget(128 << 20)) == 20_000


def test_callers_by_tls_are_served_by_the_process_that_has_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frontend would be handed a connection, and speak plain HTTP on it."""
    monkeypatch.setenv(FRONTENDS_VARIABLE, "2")
    state = an_unloaded_worker_state()
    assert _frontends_for(state) == 2

    state.config = msgspec.structs.replace(state.config, serving_tls=ServingTls(own_certificate=True))
    assert _frontends_for(state) == 0
