"""Which model a request is for, by the rules of our own gateway (`gateway/lua.py`). Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from inference_operator.gateway.hold import Refusal
from inference_operator.gateway.lua import MODEL_HEADER, NAMESPACE_HEADER, VERSION_HEADER

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_BASE = re.compile(r"/([^/?]+)(/v2/.*)")
_MODEL = re.compile(r"/v2/models/([^/?]+)(?:/versions/([^/?]+))?")
_HOST = re.compile(r"([^.:]+)\.[^:]*[A-Za-z]")
_CALL = re.compile(r"/inference\.GRPCInferenceService/([A-Za-z]+)")
# The head of a gRPC message, and how much of it is read for names.
_HEAD, MOST_READ = 5, 1024
_MODEL_TAG, _VERSION_TAG = 0x0A, 0x12
_BAD, _UNKNOWN = 400, 501
_IN_METADATA = f"name the model in the metadata {MODEL_HEADER}"


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a request is for; `version` is empty where its caller names none."""

    protocol: str
    namespace: str
    model: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class InMessage:
    """The model's name is in the first message of the request."""

    namespace: str


def of_headers(headers: Mapping[str, str]) -> Target | InMessage | Refusal:
    """Read a request's headers, whose names are in lower case."""
    path = headers.get(":path", "")
    if headers.get("content-type", "").startswith("application/grpc"):
        return _of_grpc(headers, path)
    base = _BASE.fullmatch(path)
    namespace, rest = (base[1], base[2]) if base is not None else (_namespace(headers), path)
    found = _MODEL.match(rest)
    if found is None:
        return Refusal(_BAD, "the path names no model: write /NAMESPACE/v2/models/MODEL/...")
    return _target("http", namespace, found[1], found[2] or "")


def of_message(asked: InMessage, data: bytes, *, whole: bool) -> Target | Refusal | None:
    """Read the beginning of a gRPC stream; None while more of it is needed and may come (not `whole`)."""
    if data[:1] not in (b"", b"\0"):
        return Refusal(_BAD, f"{_IN_METADATA}: a compressed request can't be read")
    end = _HEAD + int.from_bytes(data[1:_HEAD], "big")
    name, at = _field(data, _HEAD, _MODEL_TAG)
    version, after = _field(data, at, _VERSION_TAG)
    # What ends the message, or begins the field after it, says that the version was read.
    if not whole and (len(data) < _HEAD or len(data) < min(after + 1, end, MOST_READ)):
        return None
    if not name or after > len(data):
        return Refusal(_BAD, f"{_IN_METADATA}: the request does not begin with its name")
    return _target("grpc", asked.namespace, name, version)


def _of_grpc(headers: Mapping[str, str], path: str) -> Target | InMessage | Refusal:
    namespace = _namespace(headers)
    if (model := headers.get(MODEL_HEADER)) is not None:
        return _target("grpc", namespace, model, headers.get(VERSION_HEADER, ""))
    call = _CALL.fullmatch(path)
    if call is None or not call[1].startswith("Model"):
        return Refusal(_UNKNOWN, "the gateway has no such call")
    if "Stream" in call[1]:
        return Refusal(_BAD, f"{_IN_METADATA}: a stream can't be read ahead")
    return InMessage(namespace)


def _namespace(headers: Mapping[str, str]) -> str:
    if (named := headers.get(NAMESPACE_HEADER)) is not None:
        return named
    host = _HOST.match(headers.get(":authority", ""))
    return host[1] if host is not None else ""


def _target(protocol: str, namespace: str, model: str, version: str) -> Target | Refusal:
    if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(model)):
        return Refusal(_BAD, f"the request names no namespace: name it in the path, the host, or the header {NAMESPACE_HEADER}")
    return Target(protocol, namespace, model, version if _NAME.fullmatch(version) else "")


def _field(data: bytes, at: int, tag: int) -> tuple[str, int]:
    """A field of text at a place, if it is there, and where the next one begins. Lengths have two bytes at most."""
    if data[at : at + 1] != bytes([tag]):
        return "", at
    head = data[at + 1 : at + 3]
    if not head:
        return "", at + 2
    long = head[0] > 0x7F
    if long and len(head) < 2:
        return "", at + 3
    length, start = (head[0] - 0x80 + 0x80 * head[1], at + 3) if long else (head[0], at + 2)
    return data[start : start + length].decode(errors="replace"), start + length
