"""What is read back of a manifest has each list as it was applied: GitOps tools compare lists as a whole (argoproj/argo-cd#11074).

`tests/cluster/test_crds.py` shows the same of a real API server.
"""

import copy
from typing import Any

import pytest

from inference_operator.api.crd import inference_job_crd, inference_model_crd
from inference_operator.state.parse import parse_job, parse_model
from tests.builders import DIGEST
from tests.pages import manifests

Schema = dict[str, Any]
SCHEMAS: dict[str, Schema] = {
    crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for crd in (inference_job_crd(), inference_model_crd())
}
OURS = [(where, one) for where, one in manifests() if one["kind"] in SCHEMAS]


def with_defaults(value: Any, schema: Schema) -> Any:
    """Return a value with the schema's defaults, as the documentation of structural schemas has them: absent properties alone."""
    if isinstance(value, list):
        return [with_defaults(item, schema["items"]) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    filled = {name: copy.deepcopy(child["default"]) for name, child in properties.items() if "default" in child} | value
    return {name: with_defaults(one, properties.get(name, schema.get("additionalProperties", {}))) for name, one in filled.items()}


def lists(value: Any, path: str = "") -> dict[str, Any]:
    """Every list, by its path."""
    found: dict[str, Any] = {path: value} if isinstance(value, list) else {}
    for name, child in value.items() if isinstance(value, dict) else ():
        found |= lists(child, f"{path}.{name}")
    return found


@pytest.mark.parametrize(("where", "one"), OURS, ids=lambda value: value if isinstance(value, str) else "")
def test_no_list_of_an_example_differs_from_git(where: str, one: dict[str, Any]) -> None:
    stored = with_defaults(one["spec"], SCHEMAS[one["kind"]]["properties"]["spec"])

    assert lists(stored) == lists(one["spec"])


def test_a_default_outside_of_lists_is_still_filled_in() -> None:
    stored = with_defaults({"versions": [], "warmPool": {}}, SCHEMAS["InferenceModel"]["properties"]["spec"])

    assert stored["warmPool"]["min"] == 0


def test_what_an_item_leaves_out_is_read_as_its_default() -> None:
    meta = {"name": "n", "namespace": "n", "uid": "u"}
    version = {"name": "1", "uri": "pvc://d/m", "quantization": {"method": "Dynamic", "evaluation": "pvc://d/e.npy"}}
    model = parse_model(
        {
            "metadata": meta,
            "spec": {"versions": [version], "declaredProfiles": [{"accelerator": "cpu", "itemsPerSecond": 2.0}]},
            "status": {
                "profiles": [
                    {
                        "digest": DIGEST,
                        "accelerator": "cpu",
                        "batchSize": 1,
                        "itemsPerSecond": 1.0,
                        "loadSeconds": 1.0,
                        "observedTime": "2026-01-01T00:00:00Z",
                    }
                ]
            },
        }
    )
    job = parse_job(
        {"metadata": meta, "spec": {"model": "m", "tolerations": [{"key": "gpu"}], "template": {"env": [{"name": "A"}]}}}
    )

    assert model.spec is not None and job.spec is not None and job.spec.template is not None
    (read,) = model.spec.versions
    (declared,) = model.spec.declared_profiles
    (measured,) = model.status.profiles
    assert read.format == "onnx"
    assert read.quantization is not None
    assert (read.quantization.max_drop, read.quantization.min_agreement) == (0.01, 0.99)
    assert (declared.backend.value, declared.load_seconds) == ("auto", 3.0)
    assert (measured.backend.value, measured.samples, measured.spread) == ("onnx", 1, None)
    assert (job.spec.tolerations[0].operator, job.spec.template.env[0].value) == ("Equal", "")
