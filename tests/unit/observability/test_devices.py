"""Declared and measured watts side by side."""

from prometheus_client import CollectorRegistry, generate_latest

from inference_operator.observability.devices import DeviceCollector


def test_declared_watts_stand_beside_the_mean_of_what_was_measured() -> None:
    registry = CollectorRegistry()
    registry.register(DeviceCollector({"gpu": 300.0, "cpu": 15.0}, lambda: [("gpu", 100.0), ("gpu", 140.0), ("gone", 1.0)]))

    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]

    assert lines == [
        'inference_accelerator_watts{accelerator="gpu",source="declared"} 300.0',
        'inference_accelerator_watts{accelerator="gpu",source="measured"} 120.0',
        'inference_accelerator_watts{accelerator="cpu",source="declared"} 15.0',
    ]
