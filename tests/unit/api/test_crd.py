"""The CRDs: as generated, and as the API server and its users need them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_operator.api.crd import files, inference_job_crd, inference_model_crd
from inference_operator.api.quantity import MAX_LENGTH, PATTERN
from tests.kstatus import kstatus

Schema = dict[str, Any]

CRDS = {"InferenceJob": inference_job_crd(), "InferenceModel": inference_model_crd()}
DIRECTORY = Path(__file__).parents[3] / "crds"

ACCELERATORS = ("auto", "gpu", "cpu", "mig-1g", "a100", "8x", "A100", "mig_1g", "nvidia.com/gpu", "-x", "x-", "a b", "")

every_crd = pytest.mark.parametrize("kind", CRDS)
# A Pod takes text, whole numbers and fractions: no type of OpenAPI stands for all three.
QUANTITY = {
    "x-kubernetes-preserve-unknown-fields": True,
    "pattern": PATTERN,
    "maxLength": MAX_LENGTH,
    "minimum": 0,
    "maxProperties": 0,
    "maxItems": 0,
    "not": {"enum": [True, False, {}, []]},
}


def version(kind: str) -> Schema:
    (only,) = CRDS[kind]["spec"]["versions"]
    found: Schema = only
    return found


def root(kind: str) -> Schema:
    schema: Schema = version(kind)["schema"]["openAPIV3Schema"]
    return schema


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema inside spec and status, with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


def fields(kind: str) -> list[tuple[str, Schema]]:
    parts = root(kind)["properties"]
    return [entry for part in ("spec", "status") for entry in walk(parts[part], part)]


def resolve(kind: str, path: str) -> Schema:
    schema = root(kind)
    # A filter picks one item; it may hold dots of its own.
    path = re.sub(r"\[\?\(.*?\)\]", "[*]", path)
    for step in path.removeprefix(".").split("."):
        name, index = step.removesuffix("[*]"), step.endswith("[*]")
        schema = schema["properties"][name]
        schema = schema["items"] if index else schema
    return schema


def test_the_files_are_what_the_types_say() -> None:
    written = {path.name: path.read_text() for path in DIRECTORY.glob("*.yaml")}

    assert written == files(), "run: make crds"


@every_crd
def test_every_list_map_and_string_is_bounded(kind: str) -> None:
    for path, schema in fields(kind):
        match schema.get("type"):
            case None:
                assert schema == QUANTITY, path
            case "string":
                assert "maxLength" in schema or "enum" in schema or schema.get("format") == "date-time", path
            case "array":
                assert "maxItems" in schema, path
            case "object" if "additionalProperties" in schema:
                assert "maxProperties" in schema, path
            case _:
                pass


@every_crd
def test_every_property_is_described(kind: str) -> None:
    for path, schema in fields(kind):
        if not path.endswith(("[]", "{}")):
            assert schema.get("description"), path
    assert root(kind)["description"]


@every_crd
def test_every_schema_is_structural(kind: str) -> None:
    for path, schema in fields(kind):
        if schema == QUANTITY:
            continue
        assert schema["type"] in ("string", "integer", "number", "boolean", "object", "array"), path
        assert not {"$ref", "anyOf", "oneOf", "allOf", "const", "title", "nullable"} & set(schema), path
        assert schema["type"] != "object" or ("properties" in schema) != ("additionalProperties" in schema), path
        assert set(schema.get("required", [])) <= set(schema.get("properties", {})), path
        assert schema["type"] != "integer" or schema["format"] == "int64", path


@every_crd
def test_every_amount_of_a_resource_takes_what_a_pod_takes(kind: str) -> None:
    """SeldonIO/seldon-core#1410: `cpu: 1` was refused."""
    amounts = [schema for path, schema in fields(kind) if re.search(r"(requests|limits)\{\}$", path)]

    assert len(amounts) >= 2
    assert all(schema == QUANTITY for schema in amounts)


@every_crd
def test_every_list_says_how_it_is_merged(kind: str) -> None:
    for path, schema in fields(kind):
        if schema.get("type") != "array":
            continue
        assert schema.get("x-kubernetes-list-type") in ("atomic", "set", "map"), path
        if schema["x-kubernetes-list-type"] == "map":
            item = schema["items"]
            for key in schema["x-kubernetes-list-map-keys"]:
                assert key in item["required"], f"{path}: {key} may be absent"


@every_crd
def test_no_default_stands_inside_a_list(kind: str) -> None:
    """GitOps tools compare a list as a whole: what a default adds to an item is a difference for ever (argo-cd#11074)."""
    inside = [path for path, schema in fields(kind) if "[]" in path and "default" in schema]

    assert inside == []


def rules(kind: str) -> list[tuple[str, Schema, Schema]]:
    return [(path, schema, rule) for path, schema in fields(kind) for rule in schema.get("x-kubernetes-validations", [])]


@every_crd
def test_no_rule_stands_in_the_way_of_a_status(kind: str) -> None:
    """A spec that was stored before a rule came may break it, and what a status says of it would never be written."""
    assert [path for path, _, _ in rules(kind) if path.startswith("status")] == []


@every_crd
def test_every_rule_tells_in_one_line_what_is_wrong(kind: str) -> None:
    for path, _, rule in rules(kind):
        assert rule["message"] and "\n" not in rule["message"], path


@every_crd
def test_every_rule_is_about_fields_that_exist(kind: str) -> None:
    for path, schema, rule in rules(kind):
        named = re.findall(r"\b(?:self|oldSelf)\.(\w+)\b(?!\()", rule["rule"])
        assert set(named) <= set(schema.get("properties", {})), f"{path}: {rule['rule']}"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("spec"),
        "spec.input",
    ],
)
def test_a_name_is_not_taken_for_an_address(path: str) -> None:
    for where, _, rule in rules("InferenceJob"):
        if where == path and "model" in rule["rule"]:
            assert "startsWith('http')" not in rule["rule"]


@every_crd
def test_columns_and_selectable_fields_are_there(kind: str) -> None:
    for column in version(kind)["additionalPrinterColumns"]:
        if not column["jsonPath"].startswith(".metadata."):
            found = resolve(kind, column["jsonPath"])
            assert column["type"] in (found["type"], "date"), column
    selectable = version(kind).get("selectableFields", [])
    assert len(selectable) <= 8
    assert all(resolve(kind, field["jsonPath"])["type"] in ("string", "boolean", "integer") for field in selectable)


def test_a_column_of_a_model_shows_all_of_its_versions() -> None:
    """A column shows the first match of its path alone: `.spec.versions[*].name` is the name of the first version."""
    columns = {column["name"]: column["jsonPath"] for column in version("InferenceModel")["additionalPrinterColumns"]}

    assert columns["Versions"] == ".status.versions"
    assert not [path for path in columns.values() if "[*]" in path]


def test_the_scale_subresource_has_its_fields_and_a_default() -> None:
    scale = version("InferenceJob")["subresources"]["scale"]

    assert resolve("InferenceJob", scale["specReplicasPath"])["default"] == 1
    assert resolve("InferenceJob", scale["statusReplicasPath"])["type"] == "integer"
    assert resolve("InferenceJob", scale["labelSelectorPath"])["type"] == "string"


@every_crd
def test_the_status_is_a_subresource_and_one_version_is_stored(kind: str) -> None:
    assert version(kind)["subresources"]["status"] == {}
    assert version(kind)["served"] and version(kind)["storage"]
    assert root(kind)["required"] == ["spec"]


@every_crd
def test_an_object_that_nobody_has_looked_at_is_not_current(kind: str) -> None:
    """kstatus compares generations only where a status has one, and takes an object without conditions for current."""
    status = root(kind)["properties"]["status"]["default"]

    assert kstatus({"metadata": {"generation": 1}, "status": status}) == "InProgress"


@every_crd
def test_a_crd_fits_kubectls_annotation(kind: str) -> None:
    assert len(json.dumps(CRDS[kind])) < 200 * 1024


@pytest.mark.parametrize(("kind", "path"), [("InferenceJob", "spec.accelerator"), ("InferenceModel", "spec.warmPool.accelerator")])
def test_an_accelerator_is_any_dns_label_and_auto_by_default(kind: str, path: str) -> None:
    schema = resolve(kind, path)
    taken = {name for name in ACCELERATORS if re.search(schema["pattern"], name)}

    assert (schema["type"], schema["default"], schema["minLength"], schema["maxLength"]) == ("string", "auto", 1, 63)
    assert taken == {"auto", "gpu", "cpu", "mig-1g", "a100", "8x"} and "enum" not in schema


def test_defaults_are_those_that_users_expect() -> None:
    spec = root("InferenceJob")["properties"]["spec"]["properties"]

    assert {name: schema["default"] for name, schema in spec.items() if "default" in schema} == {
        "accelerator": "auto",
        "deadlinePolicy": "Soft",
        "priority": 0,
        "batchSize": 1,
        "backend": "auto",
        "replicas": 1,
        "suspend": False,
        "maxAttempts": 3,
    }
    assert root("InferenceJob")["properties"]["spec"]["required"] == ["model"]
