"""Our own table of the protocol's messages, against the descriptors that Triton's client ships."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from tritonclient.grpc import model_config_pb2, service_pb2

from inference_worker.serve import messages

OURS = messages.ModelInferRequest.DESCRIPTOR.file


def theirs(name: str) -> Descriptor:
    """The counterpart of one of our messages."""
    for file in (service_pb2.DESCRIPTOR, model_config_pb2.DESCRIPTOR):
        if name in file.message_types_by_name:
            return file.message_types_by_name[name]
    raise AssertionError(f"{name} is no message of the protocol")


def trait(field: FieldDescriptor) -> tuple[object, ...]:
    kind = field.message_type or field.enum_type
    return field.number, field.type, field.is_repeated, field.is_packed, kind and kind.name


def compare(ours: Descriptor, other: Descriptor) -> list[str]:
    """What differs in our fields; fields that we leave out are unknown to us, and passed over."""
    found = []
    for field in ours.fields:
        known = other.fields_by_name.get(field.name)
        if known is None or trait(field) != trait(known):
            found.append(f"{ours.name}.{field.name}: {trait(field)} against {known and trait(known)}")
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            assert known.message_type is not None
            found += compare(field.message_type, known.message_type)
    for nested in ours.nested_types:
        if not nested.GetOptions().map_entry:
            found += compare(nested, other.nested_types_by_name[nested.name])
    return found


@pytest.mark.parametrize("name", sorted(OURS.message_types_by_name))
def test_every_field_has_the_number_the_type_and_the_label_of_the_protocol(name: str) -> None:
    assert compare(OURS.message_types_by_name[name], theirs(name)) == []


def test_the_model_configurations_datatypes_have_the_protocols_numbers() -> None:
    ours = {value.name: value.number for value in OURS.enum_types_by_name["DataType"].values}
    assert ours == {v.name: v.number for v in model_config_pb2.DESCRIPTOR.enum_types_by_name["DataType"].values}


@pytest.mark.parametrize("name", ["InferParameter", "ModelRepositoryParameter"])
def test_a_parameter_is_one_of_the_protocols_choices(name: str) -> None:
    (ours,), (other,) = OURS.message_types_by_name[name].oneofs, theirs(name).oneofs
    assert ours.name == other.name and {f.name for f in ours.fields} == {f.name for f in other.fields}


def test_no_field_of_an_inference_is_left_out() -> None:
    for name in ("ModelInferRequest", "ModelInferResponse", "InferParameter", "InferTensorContents", "ModelStreamInferResponse"):
        ours, other = OURS.message_types_by_name[name], theirs(name)
        assert {f.name for f in ours.fields} == {f.name for f in other.fields}


def test_the_service_and_its_package_have_the_protocols_names() -> None:
    (service,) = service_pb2.DESCRIPTOR.services_by_name.values()
    assert service.full_name == messages.SERVICE
