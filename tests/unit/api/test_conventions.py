"""Kubernetes' API conventions, which docs/reference/conventions.md goes through: the names, units and forms of the CRDs' fields."""

import re
from typing import Any

import pytest

from inference_operator.api import names
from inference_operator.api.crd import inference_job_crd, inference_model_crd
from tests.unit.api.test_crd import CRDS, every_crd, fields, version

# Short names and categories of kubectl's own kinds, of cert-manager, KEDA, KServe and Kueue, and of Argo CD and Flux.
TAKEN = (
    "all cm cs csr crd crds deploy ds ep ev hpa ing limits netpol no ns pc pdb po pv pvc quota rc rs sa sc sts svc cj "
    "cert certs cr crs so sj ta isvc kwl cq lq rf app apps appset appproj ks hr"
)
# Instants whose words are the mission's, or that say more without the ending.
INSTANTS_BY_ANOTHER_NAME = {"spec.deadline", "spec.serve.until", "status.deadline.time", "status.lastPreemption.time"}
SINCE_AND_FROM = re.compile(r"status\.(asleepSince|wokenFrom)$")
# Shares, and rates and seconds that are measured: what a whole number can't say.
FRACTIONS = {
    "spec.serve.cache.frames.similarity",
    "spec.versions[].quantization.maxDrop",
    "spec.versions[].quantization.minAgreement",
    "spec.declaredProfiles[].itemsPerSecond",
    "spec.declaredProfiles[].loadSeconds",
}
# Names that others gave: back ends and their files' endings, and auto, which the mission's manifest writes so.
ENUMS_BY_THEIR_OWN_NAMES = ("backend", "format")
SAFE_INTEGER = 2**53


def name_of(path: str) -> str:
    return re.sub(r"[\[\]{}]", "", path.rsplit(".", 1)[-1])


@every_crd
def test_the_kind_and_its_short_names_are_kubernetes_form_and_nobody_elses(kind: str) -> None:
    spec = CRDS[kind]["spec"]
    words = spec["names"]

    assert not re.search(r"(^|\.)(k8s|kubernetes)\.io$", spec["group"])
    assert re.fullmatch(r"([A-Z][a-z]+)+", kind) and not kind.endswith("Controller")
    assert words == {
        **words,
        "kind": kind,
        "listKind": f"{kind}List",
        "singular": kind.lower(),
        "plural": f"{kind.lower()}s",
        "categories": ["inference"],
    }
    assert words["shortNames"] and not set(TAKEN.split()) & set(words["shortNames"])


def test_no_two_kinds_share_a_short_name() -> None:
    short = [name for crd in CRDS.values() for name in crd["spec"]["names"]["shortNames"]]

    assert len(short) == len(set(short))


@every_crd
def test_every_field_is_in_camel_case_and_no_value_is_null(kind: str) -> None:
    for path, schema in fields(kind):
        assert path.endswith("{}") or re.fullmatch(r"[a-z][A-Za-z0-9]*", name_of(path)), path
        assert "nullable" not in schema, path


@every_crd
def test_an_instant_is_a_time_and_a_duration_is_a_number_with_its_unit(kind: str) -> None:
    for path, schema in fields(kind):
        name = name_of(path)
        if schema.get("format") == "date-time":
            assert name.endswith("Time") or path in INSTANTS_BY_ANOTHER_NAME or SINCE_AND_FROM.search(path), path
        assert not re.search(r"Timestamp$|Duration$|Period$|Timeout$|Interval$", name), path
        if name.endswith(("Seconds", "Milliseconds")):
            assert schema["type"] == "integer" or path in FRACTIONS or "status" in path, path


@every_crd
def test_a_spec_has_whole_numbers_that_every_language_can_hold(kind: str) -> None:
    for path, schema in fields(kind):
        if path.startswith("spec") and schema.get("type") == "number":
            assert path in FRACTIONS, f"{path}: write it in a smaller unit"
        if schema.get("type") == "integer":
            assert schema.get("maximum", SAFE_INTEGER) <= SAFE_INTEGER, path
            assert path.startswith("status") or "minimum" in schema, path


@every_crd
def test_words_to_choose_from_are_in_camel_case(kind: str) -> None:
    for path, schema in fields(kind):
        if "enum" in schema and name_of(path) not in ENUMS_BY_THEIR_OWN_NAMES:
            assert all(re.fullmatch(r"([A-Z][a-z0-9]*)+", word) for word in schema["enum"]), path


@every_crd
def test_no_default_follows_another_field(kind: str) -> None:
    """What is stored is what holds, whatever is edited later: a default is a value of the schema."""
    for path, schema in fields(kind):
        assert isinstance(schema.get("default", ""), (str, int, float, bool, dict)), path


@every_crd
def test_columns_are_short_words_and_the_last_without_wide_is_the_age(kind: str) -> None:
    columns = version(kind)["additionalPrinterColumns"]
    narrow = [column["name"] for column in columns if not column.get("priority")]

    assert narrow[-1] == "Age" and narrow.count("Age") == 1
    assert all(re.fullmatch(r"[A-Z][A-Za-z0-9]*(\([a-z]+\))?", column["name"]) for column in columns)


@every_crd
def test_the_word_phase_is_no_column(kind: str) -> None:
    assert [c for c in version(kind)["additionalPrinterColumns"] if c["jsonPath"].endswith(".phase")] == []


def test_every_label_and_annotation_of_our_own_has_our_prefix() -> None:
    keys = {value for name, value in vars(names).items() if name.startswith(("LABEL_", "ANNOTATION_")) and isinstance(value, str)}
    others = {names.LABEL_MANAGED_BY, names.LABEL_NAME, names.ANNOTATION_MOVABLE, names.ANNOTATION_MOVABLE_VOLUMES}

    assert len(keys) > len(others)
    assert all(re.fullmatch(rf"{re.escape(names.DOMAIN)}/[a-z]+(-[a-z]+)*", key) for key in keys - others)


@every_crd
def test_conditions_have_the_form_of_meta_v1(kind: str) -> None:
    found = [schema for path, schema in fields(kind) if path.endswith(".conditions")]
    items = [schema["items"] for schema in found]

    assert found and all(s["x-kubernetes-list-map-keys"] == ["type"] and s["maxItems"] == 16 for s in found)
    for item in items:
        assert set(item["required"]) >= {"type", "status", "reason", "message", "lastTransitionTime"}
        assert item["properties"]["status"]["enum"] == ["True", "False", "Unknown"]
        assert item["properties"]["type"]["maxLength"] == 316
        assert item["properties"]["reason"]["maxLength"] <= 1024 and item["properties"]["message"]["maxLength"] <= 32768
        assert item["properties"]["observedGeneration"]["minimum"] == 0


@pytest.mark.parametrize("crd", [inference_job_crd(), inference_model_crd()], ids=list(CRDS))
def test_one_version_needs_no_conversion(crd: dict[str, Any]) -> None:
    assert "conversion" not in crd["spec"] and len(crd["spec"]["versions"]) == 1
