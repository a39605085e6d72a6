"""`make docs`: the reference pages, made from the code so that they can't drift. A test compares them."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import yaml
from prometheus_client import CollectorRegistry, Metric

from inference_operator import settings as settings_module
from inference_operator.api.condition_types import ConditionType
from inference_operator.api.crd import inference_job_crd, inference_model_crd
from inference_operator.api.events import STALLED_REASONS, EventReason, EventType
from inference_operator.api.reasons import AnyReason, Reason
from inference_operator.observability import metrics as operator_metrics
from inference_operator.observability.cluster import ClusterCollector
from inference_operator.observability.devices import DeviceCollector
from inference_operator.observability.jobs import JobCollector
from inference_operator.state.store import Store
from inference_protocol.reasons import ReasonText, WorkerReason
from inference_worker import device_metrics
from inference_worker import metrics as worker_metrics
from inference_worker.node_cache.metrics import Metrics
from inference_worker.node_cache.store import ModelStore

HERE = Path(__file__).parent
CHART = HERE.parent / "charts" / "inference-operator"
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


_CONDITIONS = """# Conditions

| Type | Meaning |
|---|---|
{types}
## Reasons that the operator gives

The type names the condition that has the reason first. `Ready`, `Reconciling`, `Succeeded` and `Stalled` repeat what is in the way.

After a **final** reason the operator makes no further attempt:

* A job that was refused before it started is looked at again when its spec changes.
* A job that has failed runs anew when its spec changes, with all its attempts.
  If the cause is elsewhere, fix it, and [retry](../tasks/change-and-roll-back.md#retry-a-job-that-failed).
* A batch that has succeeded never runs again: the API server refuses an edit of what it has computed.
* A service that has ended at `serve.until` serves again when its spec says so.
* An edit of `ttlSecondsAfterFinished` alone runs nothing.
* An invalid InferenceModel ends no job: the job starts once the model is corrected.

A pod that doesn't start within `startTimeoutSeconds` is a failed attempt of its batch. After `maxAttempts` of them the batch ends.
A service or a warm pool gets another worker in its place, and goes on trying.

| Type | Reason | Meaning | Cure | Final |
|---|---|---|---|---|
{operator}
## Reasons that a worker gives

They stand in `status.lastAttempt` too. What a reason leads to:

| Final | A batch | A service |
|---|---|---|
| yes | ends at once | has `Stalled=True` while no worker answers; a new worker looks for a change, ever less often |
| no | ends after `maxAttempts` failed attempts; waits longer before each | tries again after a pause that grows |

| Type | Reason | Meaning | Cure | Final |
|---|---|---|---|---|
{worker}"""

_EVENTS = """# Events

The events of an InferenceJob (`events.k8s.io/v1`); `kubectl describe` shows them.

| Type | Reason | Meaning | Cure |
|---|---|---|---|
{events}
## A job that stalls

When `Stalled` becomes True, the event has the reason of that [condition](conditions.md), and there is no `AttemptFailed`.
A batch whose pods never started stalls with what kept the last one, for example `Unschedulable`.

| Type | Reason | Meaning | Cure |
|---|---|---|---|
{stalled}"""


def conditions() -> str:
    """The closed lists of types and reasons, with their meanings and cures."""
    reasons = [(_types(reason), reason, reason.text) for reason in sorted(Reason, key=_first_type)]
    return _CONDITIONS.format(
        types="".join(f"| `{kind}` | {kind.meaning} |\n" for kind in ConditionType),
        operator="".join(_reason_row(kinds, reason, text) for kinds, reason, text in reasons),
        worker="".join(_reason_row(f"`{ConditionType.READY}`", reason, reason.text) for reason in WorkerReason),
    )


def _types(reason: Reason) -> str:
    return ", ".join(f"`{kind}`" for kind in reason.types) or "`status.lastAttempt`"


def _first_type(reason: Reason) -> int:
    order = list(ConditionType)
    return order.index(reason.types[0]) if reason.types else len(order)


def _reason_row(types: str, reason: AnyReason, text: ReasonText) -> str:
    return f"| {types} | `{reason}` | {text.meaning} | {text.cure} | {'yes' if text.final else 'no'} |\n"


def events() -> str:
    """The closed list of events, with their meanings and cures."""
    return _EVENTS.format(
        events="".join(_event_row(reason.event_type, reason, reason.text) for reason in EventReason),
        stalled="".join(_event_row(EventType.WARNING, reason, reason.text) for reason in STALLED_REASONS),
    )


def _event_row(event_type: EventType, reason: str, text: ReasonText) -> str:
    return f"| {event_type} | `{reason}` | {text.meaning} | {text.cure} |\n"


def metrics() -> str:
    """Every metric of operator and worker."""
    text = "# Metrics\n"
    for title, registry in (
        ("Operator, port 8080: each replica", _operator_registry()),
        ("Operator, port 8080: the leader alone", _cluster_registry()),
        ("Worker, port 8000", _worker_registry()),
        ("Node cache, port 8007", _node_cache_registry()),
    ):
        text += f"\n## {title}\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|\n"
        text += "".join(sorted(_metric_rows(registry)))
    return text


def _operator_registry() -> CollectorRegistry:
    """What each replica tells of itself."""
    return operator_metrics.REGISTRY


def _cluster_registry() -> CollectorRegistry:
    """What the leader tells: what it counts, and what it makes of the store, of which it is told when it runs."""
    registry = CollectorRegistry()
    for collector in operator_metrics.CLUSTER._collector_to_names:  # noqa: SLF001 -- there is no public list of collectors
        registry.register(collector)
    registry.register(ClusterCollector(Store(), lambda: datetime.now(UTC)))
    registry.register(JobCollector(tuple))
    registry.register(DeviceCollector({"": 0.0}, tuple))
    return registry


def _worker_registry() -> CollectorRegistry:
    """The worker's registry with one model and one device in it, which is where most of its series come from."""
    registry = CollectorRegistry()
    registry.register(worker_metrics.items_total)
    registry.register(worker_metrics.ModelCollector([worker_metrics.sample()]))
    registry.register(device_metrics.DeviceCollector(device_metrics.device_sample))
    return registry


def _node_cache_registry() -> CollectorRegistry:
    """That of a node's cache, which is empty."""
    registry = CollectorRegistry()
    with TemporaryDirectory() as folder:
        registry.register(Metrics(ModelStore(Path(folder), limit=1, shared=False, now=lambda: 0.0)))
    return registry


def _metric_rows(registry: CollectorRegistry) -> Iterator[str]:
    for collector in registry._collector_to_names:  # noqa: SLF001 -- there is no public list of labelled metrics without samples
        for family in collector.describe() if hasattr(collector, "describe") else collector.collect():
            own = getattr(collector, "_labelnames", None)
            labels = ", ".join(own if own is not None else _labels(family))
            name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
            kind = "gauge" if family.type == "info" else family.type
            yield f"| `{name}` | {kind} | {labels} | {family.documentation} |\n"


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


_CHART = """# inference-operator

Installs the operator, its CustomResourceDefinitions and what it needs. From a checkout, with the images in a registry:

```sh
helm install inference-operator charts/inference-operator -n inference-system --create-namespace \\
  --set image.registry=REGISTRY --set worker.image.registry=REGISTRY
kubectl rollout status deployment/inference-operator -n inference-system
```

The [quickstart](../../docs/quickstart.md) leads to a first job, and [install](../../docs/tasks/install.md) says what to set first.
The [documentation](../../docs/index.md) has a page for each task.

## Values

| Value | Default | Meaning |
|---|---|---|
"""


def chart() -> str:
    """The chart's README: each value with its default, and its comment in values.yaml."""
    text = (CHART / "values.yaml").read_text()
    return _CHART + "".join(_values(yaml.safe_load(text), _comments(text), ()))


def _comments(text: str) -> dict[tuple[str, ...], str]:
    """What stands above each key, by its path; examples in a comment are indented, and left out."""
    found: dict[tuple[str, ...], str] = {}
    above: list[str] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        if comment := re.fullmatch(r" *# ?(.*)", line):
            above.append(comment[1])
            continue
        if key := re.match(r"( *)([\w-]+):", line):
            path = [*(one for one in path if one[0] < len(key[1])), (len(key[1]), key[2])]
            found[tuple(name for _, name in path)] = " ".join(one for one in above if not one.startswith("  "))
        above = []
    return found


def _values(values: dict[str, Any], comments: dict[tuple[str, ...], str], above: tuple[str, ...]) -> Iterator[str]:
    for name, value in values.items():
        path = (*above, name)
        divided, meaning = isinstance(value, dict) and bool(value), comments.get(path, "").replace("|", "\\|")
        if meaning or not divided:
            default = "" if divided else f"`{json.dumps(value)}`"
            yield f"| `{'.'.join(path)}` | {default} | {meaning} |\n"
        if divided:
            yield from _values(value, comments, path)


_CLI = """# Commands of kubectl inference

[Use kubectl inference](../tasks/kubectl-plugin.md) tells what to use when, and what exit codes mean.

"""

_DECISIONS = """# Decisions

Each page is one decision: its context, what was decided, what else was tried, and what follows from it.

"""


def cli() -> str:
    """Every command of the plug-in with its options, as Typer writes them."""
    command = (sys.executable, "-m", "typer", "kubectl_inference.app", "utils", "docs", "--name", "kubectl inference")
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _, _, commands = made.partition("\n## ")
    return f"{_CLI}## {commands.rstrip()}\n"


def decisions() -> str:
    """The decisions, by their titles."""
    pages = sorted((HERE / "adr").glob("[0-9]*.md"))
    return _DECISIONS + "".join(f"* [{page.read_text().splitlines()[0].removeprefix('# ')}]({page.name})\n" for page in pages)


PAGES = {
    "../adr/README.md": decisions,
    "api.md": api,
    "cli.md": cli,
    "conditions.md": conditions,
    "events.md": events,
    "metrics.md": metrics,
    "settings.md": settings,
    "../../charts/inference-operator/README.md": chart,
}


def main() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        (HERE / "reference" / name).write_text(_HEAD + page())


if __name__ == "__main__":
    main()
