"""What the work costs in energy."""

from dev.dashboards.board import IN_NAMESPACE, NAMESPACE, Board, Kind, Panel, Query, Row, rate

_WORK = (
    Panel(
        "Energy of batches, last day",
        "Counted at each attempt's end: measured by meters, or modelled from declared watts.",
        (Query(f"sum by (source) (increase(inference_energy_joules_total{{{IN_NAMESPACE}}}[24h]))", "{{source}}"),),
        unit="joule",
        kind=Kind.NUMBER,
    ),
    Panel(
        "Power of batches by namespace",
        "Energy of attempts that ended, each second.",
        (Query(rate(f"inference_energy_joules_total{{{IN_NAMESPACE}}}", "namespace"), "{{namespace}}"),),
        unit="watt",
        kind=Kind.STACK,
    ),
    Panel(
        "Energy of an item",
        "Joules for each committed item of batches, over the last hour.",
        (
            Query(
                f"sum(increase(inference_energy_joules_total{{{IN_NAMESPACE}}}[1h]))"
                f" / sum(increase(inference_batch_items_total{{{IN_NAMESPACE}}}[1h]))",
                "joules",
            ),
        ),
        unit="joule",
    ),
)
_DEVICES = (
    Panel(
        "Watts of a worker",
        "Declared for a busy one, and measured as the mean of all, by accelerator class.",
        (Query("max by (accelerator, source) (inference_accelerator_watts)", "{{accelerator}} {{source}}"),),
        unit="watt",
    ),
    Panel(
        "Power of devices",
        "What each device draws.",
        (Query("max by (uuid) (inference_device_power_watts)", "{{uuid}}"),),
        unit="watt",
    ),
    Panel(
        "Energy of devices",
        "By each device's own counter, whoever used it.",
        (Query("max by (uuid) (rate(inference_device_energy_joules_total[$__rate_interval]))", "{{uuid}}"),),
        unit="watt",
    ),
    Panel(
        "Workers by accelerator class",
        "What draws while it is held.",
        (Query(f"sum by (accelerator) (inference_workers{{{IN_NAMESPACE}}})", "{{accelerator}}"),),
        kind=Kind.STACK,
    ),
)

BOARD = Board(
    "energy",
    "Energy of batches, and power of accelerator classes and devices.",
    (Row("Work", _WORK), Row("Devices", _DEVICES)),
    (NAMESPACE,),
)
