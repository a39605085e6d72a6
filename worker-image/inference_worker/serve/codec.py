"""Open Inference Protocol v2 bodies to numpy and back: JSON, and the binary tensor extension.

With the extension, the header Inference-Header-Content-Length gives the length of the JSON part; raw little-endian tensors follow
it in order. BYTES elements carry a four-byte length each. Sources: kserve/open-inference-protocol, and
Triton's "binary tensor data extension".
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import numpy as np
import orjson

from inference_worker import datatypes
from inference_worker.engine import Tensor, Tensors, TensorSpec
from inference_worker.errors import RequestError

HEADER = "Inference-Header-Content-Length"
# More elements than any body may hold; numpy overflows on products far above it, even of shapes with a zero.
_LARGEST = 1 << 40


@dataclass(frozen=True, slots=True)
class InferRequest:
    """One request: feeds by input name, the outputs asked for (empty is all), and how each goes out.

    `binary` and `plain` hold the outputs that asked for one form; `binary_all` is for those that asked for nothing.
    """

    id: str
    feeds: dict[str, Tensor]
    outputs: tuple[str, ...]
    binary: frozenset[str]
    binary_all: bool
    plain: frozenset[str] = frozenset()


def bad(message: str) -> RequestError:
    """The caller's fault, in words for the caller."""
    return RequestError(HTTPStatus.BAD_REQUEST, message)


def decode(body: bytes, header_length: str | None, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> InferRequest:
    """Parse and check a request against the model's signature. Raises RequestError(400)."""
    view = memoryview(body)
    size = _json_size(header_length, len(body))
    try:
        document = orjson.loads(view[:size])
    except orjson.JSONDecodeError as error:
        raise bad(f"the request is no JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise bad("the request must be an object with a list 'inputs'")
    feeds = _feeds(document["inputs"], view[size:], {spec.name: spec for spec in inputs})
    names, binary, plain = _outputs(document.get("outputs"), outputs)
    # What the request as a whole asks for is a wish; what an input says of itself has to be understood.
    wishes = document.get("parameters")
    binary_all = isinstance(wishes, dict) and wishes.get("binary_data_output") is True
    identity = document.get("id")
    return InferRequest("" if identity is None else str(identity), feeds, names, binary, binary_all, plain)


def _json_size(header_length: str | None, total: int) -> int:
    if header_length is None:
        return total
    # The length is bounded before it is a number: Python refuses to convert some thousands of digits.
    if not header_length.isascii() or not header_length.isdigit() or len(header_length) > 12 or int(header_length) > total:
        raise bad(f"{HEADER} must be a number from 0 to the body's length ({total}), not {header_length[:32]!r}")
    return int(header_length)


def _feeds(entries: list[Any], raw: memoryview, specs: dict[str, TensorSpec]) -> dict[str, Tensor]:
    feeds: dict[str, Tensor] = {}
    offset = 0
    for entry in entries:
        if not isinstance(entry, dict):
            raise bad("each input must be an object")
        name = entry.get("name")
        spec = specs.get(name) if isinstance(name, str) else None
        if spec is None:
            raise bad(f"unknown input {name!r}; the model has {', '.join(specs)}")
        if spec.name in feeds:
            raise bad(f"input {spec.name!r} is given twice")
        shape = _shape(entry, spec)
        size = _parameters(entry).get("binary_data_size")
        if size is None:
            feeds[spec.name] = _from_json(entry, shape, spec)
            continue
        if type(size) is not int or size < 0 or offset + size > len(raw):
            raise bad(f"input {spec.name!r}: binary_data_size {size!r} does not fit the {len(raw)} binary bytes of the body")
        feeds[spec.name] = _from_binary(raw[offset : offset + size], shape, spec)
        offset += size
    if offset != len(raw):
        raise bad(f"the body has {len(raw)} binary bytes, but its inputs account for {offset}")
    if missing := specs.keys() - feeds.keys():
        raise bad(f"missing input {', '.join(sorted(missing))}")
    return feeds


def _parameters(owner: dict[str, Any]) -> dict[str, Any]:
    parameters = owner.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise bad(f"parameters must be an object, not {parameters!r}"[:200])
    return parameters


def _shape(entry: dict[str, Any], spec: TensorSpec) -> tuple[int, ...]:
    if entry.get("datatype") != spec.datatype:
        raise bad(f"input {spec.name!r} is {spec.datatype}, not {entry.get('datatype')!r}")
    shape = entry.get("shape")
    if not isinstance(shape, list) or not all(type(d) is int and 0 <= d < 2**31 for d in shape):
        raise bad(f"input {spec.name!r}: shape must be a list of sizes, not {shape!r}")
    if len(shape) != len(spec.shape) or any(w is not None and w != h for w, h in zip(spec.shape, shape, strict=True)):
        raise bad(f"input {spec.name!r}: shape {shape} does not fit the model's {spec.wire_shape}")
    if math.prod(max(d, 1) for d in shape) > _LARGEST:
        raise bad(f"input {spec.name!r}: shape {shape} is beyond all bounds")
    return tuple(shape)


def _from_json(entry: dict[str, Any], shape: tuple[int, ...], spec: TensorSpec) -> Tensor:
    data = entry.get("data")
    if not isinstance(data, list):
        raise bad(f"input {spec.name!r} has neither data nor binary_data_size")
    if spec.datatype == "FP16":
        raise bad(f"input {spec.name!r}: FP16 goes as binary data, since JSON has no exact form of it")
    try:
        if spec.datatype == "BYTES":
            return _objects(_flat(data)).reshape(shape)
        array = datatypes.from_values(data, spec.datatype)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise bad(f"input {spec.name!r}: data is no {spec.datatype} tensor: {error}") from error
    if array.size != math.prod(shape):
        raise bad(f"input {spec.name!r}: {array.size} values do not fill shape {list(shape)}")
    return array.reshape(shape)


def _flat(data: list[Any]) -> list[str]:
    flat: list[str] = []
    for value in data:
        if isinstance(value, list):
            flat.extend(_flat(value))
        elif isinstance(value, str):
            flat.append(value)
        else:
            raise TypeError(f"{value!r} is no string")
    return flat


def _objects(values: list[str]) -> Tensor:
    # ONNX Runtime takes strings as Python text; given bytes it would take their printed form.
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _from_binary(raw: memoryview, shape: tuple[int, ...], spec: TensorSpec) -> Tensor:
    count = math.prod(shape)
    if spec.datatype == "BYTES":
        return _strings(raw, count, spec.name).reshape(shape)
    if len(raw) != count * spec.dtype.itemsize:
        raise bad(f"input {spec.name!r}: {len(raw)} bytes are no {spec.datatype} tensor of shape {list(shape)}")
    return np.frombuffer(raw, dtype=spec.dtype).reshape(shape)


def _strings(raw: memoryview, count: int, name: str) -> Tensor:
    values: list[str] = []
    offset = 0
    while offset < len(raw):
        if offset + 4 > len(raw):
            raise bad(f"input {name!r}: a BYTES length is cut off")
        (size,) = struct.unpack_from("<I", raw, offset)
        offset += 4
        if offset + size > len(raw):
            raise bad(f"input {name!r}: a BYTES element of {size} bytes reaches beyond the data")
        try:
            values.append(str(raw[offset : offset + size], "utf-8"))
        except UnicodeDecodeError as error:
            raise bad(f"input {name!r}: element {len(values)} is no UTF-8, which is all that ONNX strings hold: {error}") from error
        offset += size
    if len(values) != count:
        raise bad(f"input {name!r}: {len(values)} BYTES elements do not fill a shape of {count}")
    return _objects(values)


def _outputs(entries: object, specs: Sequence[TensorSpec]) -> tuple[tuple[str, ...], frozenset[str], frozenset[str]]:
    if entries is None or entries == []:
        return (), frozenset(), frozenset()
    known = {spec.name for spec in specs}
    names: list[str] = []
    wishes: dict[object, set[str]] = {True: set(), False: set()}
    for entry in entries if isinstance(entries, list) else [None]:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name not in known:
            raise bad(f"unknown output {name!r}; the model has {', '.join(sorted(known))}")
        names.append(name)
        wish = _parameters(entry if isinstance(entry, dict) else {}).get("binary_data")
        if isinstance(wish, bool):
            wishes[wish].add(name)
    return tuple(dict.fromkeys(names)), frozenset(wishes[True]), frozenset(wishes[False])


def encode(request: InferRequest, answers: Tensors, *, model: str, version: str) -> tuple[bytes, int | None]:
    """The response body, and the length of its JSON part when binary tensors follow it."""
    chunks: list[bytes] = []
    entries: list[dict[str, Any]] = []
    for name, array in answers.items():
        datatype = datatypes.name_of(array)
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": array.shape}
        if name in request.binary or (request.binary_all and name not in request.plain):
            chunk = _to_binary(array, datatype)
            entry["parameters"] = {"binary_data_size": len(chunk)}
            chunks.append(chunk)
        else:
            entry["data"] = _to_json(name, array, datatype)
        entries.append(entry)
    document: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": entries}
    if request.id:
        document["id"] = request.id
    head = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join([head, *chunks]), len(head)) if chunks else (head, None)


def _to_binary(array: Tensor, datatype: str) -> bytes:
    if datatype != "BYTES":
        return array.tobytes()
    values = [_as_bytes(value) for value in array.ravel()]
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def _to_json(name: str, array: Tensor, datatype: str) -> object:
    if datatype == "BYTES":
        return [_as_bytes(value).decode(errors="replace") for value in array.ravel()]
    if datatype == "FP16":
        raise bad(f"output {name!r} is FP16: ask for it as binary data, since JSON has no exact form of it")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise bad(f"output {name!r} holds NaN or infinity, which JSON can't carry: ask for it as binary data")
    return np.ascontiguousarray(array).ravel()


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
