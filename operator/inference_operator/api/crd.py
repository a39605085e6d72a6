"""CustomResourceDefinitions from the API's types: `python -m inference_operator.api.crd DIRECTORY...`."""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from inference_operator.api import job, job_status, model
from inference_operator.api.schema import GROUP, VERSION, Rule, validated

Schema = dict[str, Any]

# What decides the answers of a batch, leaf by leaf: the API server can't bound what it costs to compare whole objects.
_COMPUTED = (
    "model", "modelVersion", "modelDigest", "accelerator", "backend", "batchSize", "input.uri", "input.data", "input.format",
    "input.digest", "input.allowNonFinite", "output.uri",
)  # fmt: skip
# What a structural schema may hold of what pydantic writes.
_KEPT = (
    "type",
    "description",
    "enum",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "not",
    "required",
    "default",
)


def structural(cls: type) -> Schema:
    """The type's schema as Kubernetes wants it: no references, no unions with null, every property described."""
    raw = TypeAdapter(cls).json_schema(by_alias=True, mode="validation")
    return _lower(raw, raw.get("$defs", {}))


def _lower(node: Schema, definitions: dict[str, Schema], *, in_list: bool = False) -> Schema:
    node = _resolve(node, definitions)
    result: Schema = {key: node[key] for key in _KEPT if key in node}
    result.update({key: value for key, value in node.items() if key.startswith("x-kubernetes-")})
    if result.get("default", ...) in (None, {}, []):
        del result["default"]
    if in_list and "default" in result:
        # GitOps tools compare a list as a whole: a default that the API server fills in there differs from Git for ever
        # (argoproj/argo-cd#11074). Reading the object applies it instead.
        default = json.dumps(result.pop("default")).strip('"') or '""'
        result["description"] = f"{result['description']} Defaults to {default}."
    match node.get("type"):
        case "object" if "properties" in node:
            children = node["properties"].items()
            result["properties"] = {name: _lower(child, definitions, in_list=in_list) for name, child in children}
        case "object":
            result["additionalProperties"] = _lower(node["additionalProperties"], definitions, in_list=in_list)
        case "array":
            result["items"] = items = _lower(node["items"], definitions, in_list=True)
            if keys := node.get("x-kubernetes-list-map-keys"):
                # A key has to be there, since no default fills it in.
                items["required"] = list(dict.fromkeys([*items.get("required", ()), *keys]))
        case "integer":
            # Everything countable fits a double exactly, as the API conventions ask.
            result["format"] = "int64"
        case _:
            pass
    return result


def _resolve(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Follow references and drop `| None`, letting what stands at the use override what stands at the definition."""
    merged = dict(node)
    while "$ref" in merged or "anyOf" in merged:
        if "$ref" in merged:
            inner = definitions[merged.pop("$ref").rsplit("/", 1)[1]]
        else:
            (inner,) = [option for option in merged.pop("anyOf") if option.get("type") != "null"]
        merged = {**inner, **merged}
    return merged


def _without_rules(schema: Schema) -> Schema:
    """The schema without CEL: a status that repeats a spec which was stored before a rule came must still be written."""
    result = {key: value for key, value in schema.items() if key != "x-kubernetes-validations"}
    if "properties" in schema:
        result["properties"] = {name: _without_rules(child) for name, child in schema["properties"].items()}
    for part in ("items", "additionalProperties"):
        if part in schema:
            result[part] = _without_rules(schema[part])
    return result


def _crd(*, kind: str, plural: str, short: str, spec: type, status: type, version: Schema, rules: tuple[Rule, ...] = ()) -> Schema:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["inference"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _object(spec, status, rules)},
                    **version,
                }
            ],
        },
    }


def _object(spec: type, status: type, rules: tuple[Rule, ...]) -> Schema:
    return {
        "type": "object",
        "description": structural(spec).get("description", ""),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(spec),
            # Without it, kstatus takes an object that nobody has looked at for current.
            "status": {**_without_rules(structural(status)), "default": {"observedGeneration": 0}},
        },
        **(validated(*rules) if rules else {}),
    }


def _column(name: str, path: str, *, kind: str = "string", priority: int = 0, description: str = "") -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    if description:
        column["description"] = description
    if priority:
        column["priority"] = priority
    return column


def inference_job_crd() -> Schema:
    """The InferenceJob CRD."""
    return _crd(
        kind=job.KIND,
        plural=job.PLURAL,
        short="ij",
        spec=job.InferenceJobSpec,
        status=job_status.InferenceJobStatus,
        rules=(_ended_batches_stay(), _running_batches_stay_in_their_queue()),
        version={
            "subresources": {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                },
            },
            "selectableFields": [
                {"jsonPath": path}
                for path in (".spec.model", ".spec.accelerator", ".spec.suspend", ".status.phase", ".status.placement.node")
            ],
            "additionalPrinterColumns": [
                _column("Accelerator", ".status.placement.accelerator", description="Accelerator class it runs on"),
                _column("Reason", ".status.reason", description="How it stands, in one word"),
                _column("Outlook", ".status.deadline.outlook", description="Whether the deadline will be kept"),
                _column(
                    "Slack(s)", ".status.deadline.slackSeconds", kind="integer", description="Seconds to spare; negative is late"
                ),
                _column("P95", ".status.latency.p95", kind="number", description="95th percentile of latency, milliseconds"),
                _column("Node", ".status.placement.node", description="Node it runs on"),
                _column("Age", ".metadata.creationTimestamp", kind="date"),
                _column("Model", ".spec.model", priority=1),
                _column("Provider", ".status.placement.executionProvider", priority=1),
                _column("Completed", ".status.progress.completed", kind="integer", priority=1),
                _column("Total", ".status.progress.total", kind="integer", priority=1),
                # As text: kubectl shows dates as ages, and knows none for what is still to come.
                _column("Deadline", ".spec.deadline", priority=1),
            ],
        },
    )


def _ended_batches_stay() -> Rule:
    """A batch that has succeeded is not run again by an edit, so none is taken of what it was to compute."""
    same = " && ".join(_unchanged(path) for path in _COMPUTED)
    # The phase follows from the conditions, and costs a rule less to read.
    open_ = f"oldSelf.?status.?phase.orValue('') != '{job_status.Phase.SUCCEEDED.value}'"
    return Rule(
        f"!has(oldSelf.spec.input) || {open_} || ({same})",
        "the batch has succeeded, so its model, accelerator, backend, batchSize, input and output can't change; create another job",
    )


def _running_batches_stay_in_their_queue() -> Rule:
    """What runs by the quota of one queue can't be another's."""
    running = ", ".join(f"'{phase.value}'" for phase in (job_status.Phase.STARTING, job_status.Phase.RUNNING))
    return Rule(
        f"!(oldSelf.?status.?phase.orValue('') in [{running}]) || {_unchanged('queueName')}",
        "the batch runs, so its queueName can't change: suspend it first, or create another job",
    )


def _unchanged(path: str) -> str:
    """CEL: the field is what it was, or is absent as it was."""
    head, *rest = path.split(".")
    now, then = f"self.spec.{path}", f"oldSelf.spec.{path}"
    there = f"has({now})", f"has({then})"
    if rest:
        there = f"(has(self.spec.{head}) && has({now}))", f"(has(oldSelf.spec.{head}) && has({then}))"
    return f"({there[0]} == {there[1]} && (!{there[0]} || {now} == {then}))"


def inference_model_crd() -> Schema:
    """The InferenceModel CRD."""
    return _crd(
        kind=model.KIND,
        plural=model.PLURAL,
        short="im",
        spec=model.InferenceModelSpec,
        status=model.InferenceModelStatus,
        version={
            "subresources": {"status": {}},
            "additionalPrinterColumns": [
                _column("Default", ".status.defaultVersion", description="Version that jobs take which name none"),
                # A column shows the first match of its path: of a list's names there would be one.
                _column("Versions", ".status.versions", description="Names of its versions"),
                _column("Ready", '.status.conditions[?(@.type=="Ready")].status', description="Whether its spec can be used"),
                _column("Jobs", ".status.usage.jobs", kind="integer", description="Jobs that use it and have not ended"),
                _column("Age", ".metadata.creationTimestamp", kind="date"),
            ],
        },
    )


def files() -> dict[str, str]:
    """File name to YAML text of every CRD."""
    crds = (inference_job_crd(), inference_model_crd())
    return {f"{crd['metadata']['name']}.yaml": yaml.safe_dump(crd, sort_keys=False, width=120, allow_unicode=True) for crd in crds}


def main() -> None:
    """Write all CRDs into every directory given."""
    for target in map(Path, sys.argv[1:]):
        for name, text in files().items():
            (target / name).write_text(text)


if __name__ == "__main__":
    main()
