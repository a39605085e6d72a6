"""Copies of payloads: none unless asked for, and only to a URL that leads somewhere."""

import pytest

from inference_operator.gateway import messages
from inference_operator.gateway.door import Door
from inference_operator.gateway.payloads import CLUSTER_NAME, copying
from inference_operator.gateway.resources import resources
from inference_operator.payloads import NO_PAYLOADS, Payloads, Sink, payloads_fault, sink_of


def test_without_a_url_there_is_no_filter_and_no_cluster() -> None:
    assert copying(NO_PAYLOADS) == [] and sink_of(NO_PAYLOADS) is None
    assert CLUSTER_NAME not in resources((), {}, Door(8080, 1 << 20))[messages.CLUSTER]
    assert CLUSTER_NAME in resources((), {}, Door(8080, 1 << 20, payloads=Payloads("http://a")))[messages.CLUSTER]


@pytest.mark.parametrize(
    ("url", "sink"),
    [
        ("http://events", Sink("events", 80, "/")),
        ("http://events.ns.svc:8080/in/box", Sink("events.ns.svc", 8080, "/in/box")),
        ("http://[fd00::1]:81", Sink("fd00::1", 81, "/")),
    ],
)
def test_a_url_names_host_port_and_path(url: str, sink: Sink) -> None:
    assert sink_of(Payloads(url)) == sink and payloads_fault(Payloads(url)) is None


@pytest.mark.parametrize(
    "url", ["https://events", "events", "http://", "http://a:b@events", "http://events?q", "http://é", "http://a:99999"]
)
def test_another_kind_of_url_is_refused_with_how_it_is_written(url: str) -> None:
    """A password in it would be in the operator's ConfigMap; without TLS nothing is to look as if there were some."""
    assert "gateway.payloads.url" in (payloads_fault(Payloads(url)) or "")
