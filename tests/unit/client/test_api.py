"""The client's types and texts are those of the operator."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from dev.client import files
from inference_client import api
from inference_client.api import InferenceJob, InferenceModel
from inference_client.calls import manifest
from inference_client.steps import decode
from inference_client.texts import texts
from inference_operator.api.crd import inference_job_crd, inference_model_crd
from inference_operator.api.job import KIND
from inference_operator.api.reasons import Reason
from inference_operator.state.parse import parse_job
from inference_protocol.reasons import WorkerReason

CRDS = {InferenceJob: inference_job_crd(), InferenceModel: inference_model_crd()}


@pytest.mark.parametrize(("path", "text"), list(files()), ids=lambda one: one.name if isinstance(one, Path) else "")
def test_what_is_made_is_current(path: Path, text: str) -> None:
    assert path.read_text() == text, "run `make crds`"


@pytest.mark.parametrize(("kind", "crd"), list(CRDS.items()), ids=lambda one: getattr(one, "__name__", ""))
def test_each_field_of_the_api_is_there_under_its_name(kind: type[msgspec.Struct], crd: dict[str, Any]) -> None:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    for part in ("spec", "status"):
        assert set(_names(_type(kind, part))) == set(_properties(schema["properties"][part])), part


def _type(kind: type[msgspec.Struct], part: str) -> type[msgspec.Struct]:
    return next(field.type for field in msgspec.structs.fields(kind) if field.name == part)


def _names(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        yield f"{prefix}{field.encode_name}"
        for one in _structs(field.type):
            yield from _names(one, f"{prefix}{field.encode_name}.")


def _structs(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for one in get_args(annotation):
        yield from _structs(one)


def _properties(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, child in schema.get("properties", {}).items():
        yield f"{prefix}{name}"
        yield from _properties(child.get("items", child), f"{prefix}{name}.")


def test_each_reason_has_its_text_and_another_word_has_none() -> None:
    assert texts().reasons.keys() == {*Reason, *WorkerReason}
    assert texts().reasons["ModelUnknown"].cure == Reason.MODEL_UNKNOWN.text.cure
    assert texts().reasons.get("OfANewerOperator") is None


def test_a_job_that_is_written_is_read_by_the_operator_as_it_was_meant() -> None:
    job = InferenceJob(
        metadata=api.Metadata(name="mine", namespace="demo"),
        spec=api.InferenceJobSpec(model="digits", batch_size=4, input=api.Input(data='{"x": 1}'), deadline_policy="Firm"),
    )

    raw = manifest(job)
    read = parse_job({**raw, "metadata": {**raw["metadata"], "uid": "u"}})

    assert raw["kind"] == KIND
    assert "suspend" not in raw["spec"] and "status" not in raw
    assert read.invalid is None and read.spec is not None
    assert (read.spec.batch_size, read.spec.deadline_policy) == (4, "Firm")


def test_a_word_and_a_field_of_a_newer_operator_are_read() -> None:
    status = {"phase": "Dreaming", "deadline": {"time": "2026-12-01T12:00:00Z", "outlook": "Bright"}, "moods": [1]}

    job = decode({"metadata": {"name": "x"}, "spec": {"model": "m"}, "status": status}, InferenceJob)

    assert job.status.deadline is not None and job.status.deadline.outlook == "Bright"
