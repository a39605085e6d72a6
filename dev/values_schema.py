"""Write the made part of the chart's values.schema.json: what `settings` takes, and the fields of pods that values pass on.

The settings come from their types. Pod fields come from the API server's OpenAPI; tests/cluster/test_values_schema.py writes them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from inference_operator.api.crd import inference_job_crd
from inference_operator.settings import Settings

Schema = dict[str, Any]
SCHEMA_FILE = Path(__file__).resolve().parents[1] / "charts" / "inference-operator" / "values.schema.json"

_MARK = '    "made": '
_KUBERNETES, _SETTINGS = "kubernetes.", "settings."
# The kinds of fields that values pass on to pods and policies as they are.
_CORE = [
    "Affinity",
    "Container",
    "EnvFromSource",
    "EnvVar",
    "LabelSelector",
    "LocalObjectReference",
    "PodDNSConfig",
    "PodSecurityContext",
    "Probe",
    "ResourceRequirements",
    "SecurityContext",
    "Toleration",
    "TopologySpreadConstraint",
    "Volume",
    "VolumeMount",
]
_OTHER = ("DeploymentStrategy", "IPBlock", "NetworkPolicyPort")
# Settings that have values of their own: the chart's Services, roles and policies must agree with them.
_VALUES = [
    "accelerators",
    "autoscaling",
    "backends",
    "cost",
    "customMetrics",
    "imagePullPolicy",
    "imagePullSecrets",
    "kedaScaler",
    "kueue",
    "logFormat",
    "logLevel",
    "metering",
    "namespaces",
    "policy",
    "readAllPods",
    "workerSecurity",
]
# Parts of such settings that have none.
_LEFT: dict[str, Any] = {
    "gateway": {"api": {"seconds": {}}},
    "mutualTls": {"certificateSeconds": {}, "authoritySeconds": {}},
    "nodeCache": {"prefetchSeconds": {}},
}


def settings_definitions() -> dict[str, Schema]:
    """What the value `settings` takes, by the names of its types, and what a class adds to pods."""
    made = msgspec.json.schema(Settings)["$defs"]
    top = made["Settings"]["properties"]
    for name in _VALUES:
        top.pop(name, None)
    for name, left in _LEFT.items():
        top[name] = _only(top[name], left, made)
    # A pod has to have one, and the operator is no root.
    top["httpPort"] = {**top["httpPort"], "minimum": 1024}
    wanted = {"Settings": None, **dict.fromkeys(_reached(made["Settings"], made))}
    # The operator is told more than a type says: overrides of namespaces have names of namespaces.
    written = {"NamespaceLimits": {"$ref": "#/definitions/namespaceLimits"}}
    of_job = inference_job_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    wanted["PodTemplate"], made["PodTemplate"] = None, of_job["template"]
    return {_SETTINGS + name: written.get(name) or _plain(made[name], _SETTINGS) for name in sorted(wanted)}


def kubernetes_definitions(openapi: dict[str, Schema]) -> dict[str, Schema]:
    """The fields of pods that values pass on, from the API server's OpenAPI v3: its schemas by their names."""
    made = {name.rpartition(".")[2]: schema for name, schema in openapi.items() if ".v1beta" not in name and ".v1alpha" not in name}
    wanted: set[str] = {*_CORE, *_OTHER}
    for name in (*_CORE, *_OTHER):
        wanted.update(_reached(made[name], made))
    # The API server takes any text as a quantity, to refuse it later.
    written = {"Quantity": {"$ref": "#/definitions/quantity"}}
    return {_KUBERNETES + name: written.get(name) or _plain(made[name], _KUBERNETES) for name in sorted(wanted)}


def written_definitions(text: str) -> dict[str, Schema]:
    """The definitions of pod fields in the file."""
    definitions: dict[str, Schema] = json.loads(text)["definitions"]
    return {name: schema for name, schema in definitions.items() if name.startswith(_KUBERNETES)}


def with_definitions(text: str, kubernetes: dict[str, Schema]) -> str:
    """The file with these pod fields, and the settings of the code, after what is written by hand."""
    head, _, _ = text.partition(_MARK)
    first = {"$comment": "What follows is made by `make docs`, from the operator's settings and Kubernetes' OpenAPI."}
    lines = [f"{json.dumps(name)}: {json.dumps(schema)}" for name, schema in {**settings_definitions(), **kubernetes}.items()]
    return head + _MARK + json.dumps(first) + "".join(f",\n    {line}" for line in lines) + "\n  }\n}\n"


def _only(schema: Schema, left: dict[str, Any], made: dict[str, Schema]) -> Schema:
    """The schema of an object with these parts alone."""
    if not left:
        return schema
    properties = made[schema["$ref"].rpartition("/")[2]]["properties"]
    parts = {name: _only(properties[name], below, made) for name, below in left.items()}
    return {"type": "object", "properties": parts, "additionalProperties": False}


def _reached(schema: Any, made: dict[str, Schema], seen: frozenset[str] = frozenset()) -> Iterator[str]:
    for name in _references(schema):
        if name not in seen:
            yield name
            yield from _reached(made[name], made, seen | {name})


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference.rpartition("/")[2].rpartition(".")[2]
        for part in schema.values():
            yield from _references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def _plain(schema: Schema, prefix: str) -> Schema:
    """A schema that takes no field but its own, without descriptions and defaults."""
    if "$ref" in schema:
        return {"$ref": "#/definitions/" + prefix + schema["$ref"].rpartition("/")[2].rpartition(".")[2]}
    for several in ("allOf", "anyOf", "oneOf"):
        if several in schema:
            return _merged([_plain(one, prefix) for one in schema[several]])
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    if "properties" in schema:
        kept["properties"] = {name: _plain(part, prefix) for name, part in schema["properties"].items()}
        kept["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = _plain(schema["additionalProperties"], prefix)
    if isinstance(schema.get("items"), dict):
        kept["items"] = _plain(schema["items"], prefix)
    if not kept.get("required", True):
        del kept["required"]
    return kept


_KEPT = [
    "type",
    "enum",
    "required",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "pattern",
    "propertyNames",
    "const",
]


def _merged(schemas: list[Schema]) -> Schema:
    """One schema for several: types side by side, so that a refusal names the field and not each way to write it."""
    if len(schemas) == 1:
        return schemas[0]
    if all(isinstance(one.get("type"), str) for one in schemas):
        return {**{key: value for one in schemas for key, value in one.items()}, "type": [one["type"] for one in schemas]}
    return {"anyOf": schemas}


def main() -> None:
    """Write the file anew, for the settings of today."""
    text = SCHEMA_FILE.read_text()
    SCHEMA_FILE.write_text(with_definitions(text, written_definitions(text)))


if __name__ == "__main__":
    main()
