"""What Envoys are told of traces: nothing, unless somebody says where they go."""

from pathlib import Path
from typing import Any

import pytest

from inference_operator.gateway import messages
from inference_operator.gateway.door import Door
from inference_operator.gateway.resources import Resources, resources
from inference_operator.settings import ConfigurationError, GatewayTracing, load_settings


def told(tracing: GatewayTracing | None) -> Resources:
    return resources((), {}, Door(8080, 1 << 20, tracing=tracing))


def manager_of(found: Resources) -> Any:
    door = messages.unpacked(messages.LISTENER, found[messages.LISTENER]["door"].data)
    return door["filter_chains"][0]["filters"][0]["typed_config"]  # type: ignore[index]


def test_without_a_collector_nothing_is_told_of_traces() -> None:
    found = told(None)

    assert "tracing" not in manager_of(found) and "collector" not in found[messages.CLUSTER]


@pytest.mark.parametrize(
    ("endpoint", "uri", "host", "port"),
    [
        ("http://collector.monitoring:4318", "http://collector.monitoring:4318/v1/traces", "collector.monitoring", 4318),
        ("http://collector.monitoring/", "http://collector.monitoring/v1/traces", "collector.monitoring", 4318),
        ("http://10.0.0.9:80/otlp/v1/traces", "http://10.0.0.9:80/otlp/v1/traces", "10.0.0.9", 80),
    ],
)
def test_spans_are_posted_to_the_collector_by_its_name_or_address(endpoint: str, uri: str, host: str, port: int) -> None:
    found = told(GatewayTracing(endpoint))
    provider = manager_of(found)["tracing"]["provider"]["typed_config"]
    cluster: Any = messages.unpacked(messages.CLUSTER, found[messages.CLUSTER]["collector"].data)

    assert provider["http_service"]["http_uri"] == {"uri": uri, "cluster": "collector", "timeout": "2s"}
    (endpoints,) = cluster["load_assignment"]["endpoints"]
    assert endpoints["lb_endpoints"][0]["endpoint"]["address"]["socket_address"] == {"address": host, "port_value": port}


@pytest.mark.parametrize(("percent", "of_a_million"), [(0.0, None), (0.01, 100), (2.5, 25_000), (100.0, 1_000_000)])
def test_the_callers_word_is_asked_before_the_share_of_others(percent: float, of_a_million: int | None) -> None:
    sampler = manager_of(told(GatewayTracing("http://c:1", percent)))["tracing"]["provider"]["typed_config"]["sampler"]
    by_caller = sampler["typed_config"]

    assert by_caller["@type"].endswith("ParentBasedSamplerConfig")
    share = by_caller["wrapped_sampler"]["typed_config"]["sampling_percentage"]
    assert (share.get("numerator"), share["denominator"]) == (of_a_million, 2)


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://collector:4318",
        "collector:4318",
        "http://",
        "http://c:port",
        "http://c:0",
        "http://u:p@c:1",
        "http://c:1/?q",
        "http://c:1/#f",
    ],
)
def test_an_address_that_envoys_cannot_be_led_to_is_refused_with_the_cure(tmp_path: Path, endpoint: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"gateway: {{tracing: {{endpoint: '{endpoint}'}}}}")

    with pytest.raises(ConfigurationError, match=r"tracing\.endpoint.*name a collector"):
        load_settings(file)


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", "https://u:p@collector", "http://collector:port"])
def test_a_collector_that_workers_can_not_send_to_is_refused(tmp_path: Path, endpoint: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"tracing: {{endpoint: '{endpoint}'}}")

    with pytest.raises(ConfigurationError, match=r"tracing\.endpoint: .* is not http"):
        load_settings(file)


def test_workers_send_to_a_collector_by_tls_too(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("tracing: {endpoint: 'https://collector.monitoring:4318'}")

    assert load_settings(file).tracing.endpoint == "https://collector.monitoring:4318"


def test_the_share_of_untraced_callers_is_a_percentage(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("gateway: {tracing: {endpoint: 'http://c:1', samplingPercent: 101}}")

    with pytest.raises(ConfigurationError, match="samplingPercent"):
        load_settings(file)
