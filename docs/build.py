"""`make docs`: the reference pages, made from the code so that they can't drift. A test compares them."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Metric

from inference_operator import settings as settings_module
from inference_operator.api.conditions import ConditionType, Reason
from inference_operator.api.crd import inference_job_crd, inference_model_crd
from inference_operator.observability import metrics as operator_metrics
from inference_operator.observability.devices import DeviceCollector
from inference_operator.observability.jobs import JobCollector
from inference_protocol.reasons import PERMANENT, WorkerReason
from inference_worker import metrics as worker_metrics

HERE = Path(__file__).parent
_HEAD = "<!-- Made by `make docs`; edit the code instead. -->\n\n"


def api() -> str:
    """Every field of both kinds."""
    text = "# API reference\n\n"
    for crd in (inference_job_crd(), inference_model_crd()):
        names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        text += f"## {names['kind']}\n\n`{crd['spec']['group']}/{version['name']}`, short name `{names['shortNames'][0]}`.\n\n"
        if fields := [f["jsonPath"] for f in version.get("selectableFields", [])]:
            text += f"Field selectors: {', '.join(f'`{f}`' for f in fields)}.\n\n"
        for part in ("spec", "status"):
            text += f"### {names['kind']} {part}\n\n| Field | Type | Default | Meaning |\n|---|---|---|---|\n"
            text += "".join(_rows(properties[part], "")) + "\n"
            text += "".join(f"* {rule}\n" for rule in _rules(properties[part])) + "\n"
    return text


def _rows(schema: dict[str, Any], prefix: str) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, child in sorted(schema["properties"].items()):
        path = f"{prefix}{name}"
        inner = child["items"] if child["type"] == "array" else child
        kind = f"list of {inner['type']}" if child["type"] == "array" else child["type"]
        if enum := child.get("enum"):
            kind = " \\| ".join(map(str, enum))
        default = f"`{child['default']}`" if "default" in child else "required" if name in required else ""
        yield f"| `{path}` | {kind} | {default} | {child.get('description', '')} |\n"
        if "properties" in inner:
            yield from _rows(inner, f"{path}[]." if child["type"] == "array" else f"{path}.")


def _rules(schema: dict[str, Any]) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield rule["message"]
    for child in schema.get("properties", {}).values():
        yield from _rules(child["items"] if child["type"] == "array" else child)


def conditions() -> str:
    """The closed lists of types and reasons."""
    text = "# Conditions\n\n" + inspect.cleandoc(
        """
        | Type | Meaning |
        |---|---|
        | `Accepted` | The job is valid, and its model is known. |
        | `Placed` | Its workers have a place. |
        | `Ready` | A service answers; a batch has succeeded. |
        | `Succeeded` | Batch, and services with an end: True or False for good; Unknown while open. |
        | `Suspended` | Stopped by `spec.suspend`. |
        | `Autoscaled` | Only with `autoscaling.mode` HPA or External: whether, and by what, the number of workers is moved. |
        | `Reconciling` | On its way; kstatus reads InProgress. |
        | `Stalled` | Will not come to anything by itself; kstatus reads Failed. |
        """
    )
    missing = [kind for kind in ConditionType if f"`{kind}`" not in text]
    if missing:
        raise ValueError(f"describe {missing}")
    text += "\n\n## Reasons that the operator gives\n\n" + ", ".join(f"`{reason}`" for reason in Reason) + "\n"
    text += "\n## Reasons that a worker gives\n\n| Reason | Tried again |\n|---|---|\n"
    return text + "".join(f"| `{reason}` | {'no' if reason in PERMANENT else 'yes'} |\n" for reason in WorkerReason)


def metrics() -> str:
    """Every metric of operator and worker."""
    text = "# Metrics\n"
    for title, registry in (("Operator, port 8080", _operator_registry()), ("Worker, port 8000", _worker_registry())):
        text += f"\n## {title}\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|\n"
        text += "".join(sorted(_metric_rows(registry)))
    return text


def _operator_registry() -> CollectorRegistry:
    """The operator's own series, and those of jobs, of which it is told when it runs."""
    registry = CollectorRegistry()
    for collector in operator_metrics.REGISTRY._collector_to_names:  # noqa: SLF001 -- there is no public list of collectors
        registry.register(collector)
    registry.register(JobCollector(tuple))
    registry.register(DeviceCollector({"": 0.0}, tuple))
    return registry


def _worker_registry() -> CollectorRegistry:
    """The worker's registry with one model in it, which is where most of its series come from."""
    registry = CollectorRegistry()
    registry.register(worker_metrics.items_total)
    registry.register(worker_metrics.ModelCollector([worker_metrics.sample()]))
    return registry


def _metric_rows(registry: CollectorRegistry) -> Iterator[str]:
    for collector in registry._collector_to_names:  # noqa: SLF001 -- there is no public list of labelled metrics without samples
        for family in collector.describe() if hasattr(collector, "describe") else collector.collect():
            own = getattr(collector, "_labelnames", None)
            labels = ", ".join(own if own is not None else _labels(family))
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |\n"


def _labels(family: Metric) -> list[str]:
    if not family.samples:
        return list(getattr(family, "_labelnames", None) or (*worker_metrics.LABELS, "code"))
    return [name for name in family.samples[0].labels if name != "le"]


def settings() -> str:
    """The operator's settings, with the comment that stands over each."""
    source = inspect.getsource(settings_module.Settings)
    notes = {m[2]: " ".join(re.findall(r"# (.*)", m[1])) for m in re.finditer(r"((?:    #.*\n)*)    (\w+):", source)}
    text = "# Settings\n\nOf the operator, in the chart under `settings` (accelerators and cost have values of their own).\n\n"
    text += "| Name | Default | Meaning |\n|---|---|---|\n"
    defaults = msgspec.to_builtins(settings_module.Settings())
    for field in msgspec.structs.fields(settings_module.Settings):
        value = defaults[field.encode_name]
        shown = "see values.yaml" if isinstance(value, dict) else f"`{value}`"
        text += f"| `{field.encode_name}` | {shown} | {notes.get(field.name, '')} |\n"
    return text


PAGES = {"api.md": api, "conditions.md": conditions, "metrics.md": metrics, "settings.md": settings}


def main() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        (HERE / "reference" / name).write_text(_HEAD + page())


if __name__ == "__main__":
    main()
