"""Which model a request is for: as our own gateway reads it, from whatever piece of it has come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.gateway.hold import Refusal
from inference_operator.gateway.picker.asked import InMessage, Target, of_headers, of_message

GRPC = {"content-type": "application/grpc", ":path": "/inference.GRPCInferenceService/ModelInfer"}


def field(number: int, text: str) -> bytes:
    data = text.encode()
    head = bytes([len(data)]) if len(data) < 128 else bytes([len(data) % 128 + 128, len(data) // 128])
    return bytes([number << 3 | 2]) + head + data


def message(*fields: bytes) -> bytes:
    body = b"".join(fields)
    return b"\0" + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("headers", "target"),
    [
        ({":path": "/team/v2/models/m/infer"}, Target("http", "team", "m")),
        ({":path": "/team/v2/models/m/versions/2/infer?x=1"}, Target("http", "team", "m", "2")),
        ({":path": "/v2/models/m", "inference-namespace": "team"}, Target("http", "team", "m")),
        ({":path": "/v2/models/m/ready", ":authority": "team.models.example.com:443"}, Target("http", "team", "m")),
        ({**GRPC, "inference-namespace": "team", "inference-model": "m"}, Target("grpc", "team", "m")),
        (
            {**GRPC, "inference-namespace": "team", "inference-model": "m", "inference-model-version": "2"},
            Target("grpc", "team", "m", "2"),
        ),
        ({**GRPC, ":authority": "team.example.com"}, InMessage("team")),
    ],
)
def test_a_request_names_its_model_as_before_our_own_gateway(headers: dict[str, str], target: Target | InMessage) -> None:
    assert of_headers(headers) == target


@pytest.mark.parametrize(
    "headers",
    [
        {":path": "/v2/models/m/infer", ":authority": "10.0.0.1:80"},
        {":path": "/metrics"},
        {":path": "/team/v2/repository/models/m/unload"},
        {**GRPC, ":path": "/inference.GRPCInferenceService/RepositoryModelUnload", ":authority": "team.example.com"},
        {**GRPC, ":path": "/inference.GRPCInferenceService/ModelStreamInfer", ":authority": "team.example.com"},
    ],
)
def test_what_names_no_model_is_told_so(headers: dict[str, str]) -> None:
    assert isinstance(of_headers(headers), Refusal)


@given(st.from_regex(r"[A-Za-z0-9._-]{1,200}", fullmatch=True), st.from_regex(r"[A-Za-z0-9._-]{0,20}", fullmatch=True), st.data())
def test_a_message_in_pieces_names_the_model_of_the_whole(model: str, version: str, data: st.DataObject) -> None:
    whole = message(field(1, model), *([field(2, version)] if version else []), field(5, "x"))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=5)))

    found = [of_message(InMessage("team"), whole[:cut], whole=False) for cut in cuts]

    assert all(one in (None, Target("grpc", "team", model, version)) for one in found)
    assert of_message(InMessage("team"), whole, whole=True) == Target("grpc", "team", model, version)
    assert of_message(InMessage("team"), whole, whole=False) == Target("grpc", "team", model, version)


@given(data=st.binary(max_size=2000), whole=st.booleans())
def test_bytes_that_are_no_request_are_refused_or_waited_for_and_never_a_fault(data: bytes, *, whole: bool) -> None:
    found = of_message(InMessage("team"), data, whole=whole)

    assert found is not None or (not whole and len(data) < 1024)


def test_a_compressed_request_has_to_name_its_model_in_its_metadata() -> None:
    found = of_message(InMessage("team"), b"\1" + message(field(1, "m"))[1:], whole=True)

    assert isinstance(found, Refusal) and "inference-model" in found.text
