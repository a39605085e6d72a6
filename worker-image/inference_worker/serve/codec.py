"""Open Inference Protocol v2 bodies to numpy and back: JSON, and the binary tensor extension.

With the extension, the header Inference-Header-Content-Length gives the length of the JSON part; raw little-endian tensors follow
it in order. BYTES elements carry a length in four bytes. Sources: kserve/open-inference-protocol; Triton's binary tensor extension.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from inference_worker import datatypes
from inference_worker.engines.engine import Tensor, Tensors, TensorSpec
from inference_worker.serve import tensors
from inference_worker.serve.ask import (
    REGION,
    Ask,
    Extras,
    Read,
    Signature,
    Span,
    bad,
    identity_of,
    in_shared_memory,
    output_extras,
    scheduling,
    series_of,
    span_of,
)
from inference_worker.serve.http_messages import Payload
from inference_worker.serve.message_size import of_few_lists
from inference_worker.serve.pieces import as_json

HEADER = "Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True)
class Form:
    """How each output goes out: `binary` and `plain` hold those that asked for one form, `binary_all` is for all others.

    `heads` remembers the JSON part of answers whose tensors are all binary, by their shapes, for requests that come again.
    """

    binary: frozenset[str] = frozenset()
    binary_all: bool = False
    plain: frozenset[str] = frozenset()
    heads: dict[tuple[object, ...], bytes] | None = None

    def is_binary(self, name: str) -> bool:
        """Whether this output goes as raw bytes."""
        return name in self.binary or (self.binary_all and name not in self.plain)


_PLAIN = Form()


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a JSON part asks for whose tensors all follow it: (spec, shape, where its bytes are) by input."""

    parts: tuple[tuple[TensorSpec, tuple[int, ...], int, int], ...]
    size: int
    ask: Ask
    form: Form


class Decoder:
    """Parses and checks requests against a model's signature.

    Programs send the same JSON part with ever new tensors behind it, so what such a part meant is remembered.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._plans: dict[bytes, _Plan] = {}

    def decode(self, body: Payload, header_length: str | None) -> tuple[Ask, Form]:
        """A request. Raises RequestError(400)."""
        if header_length is None:
            return decode(body, None, self._signature)
        size = _json_size(header_length, len(body))
        head = bytes(body[:size])
        plan = self._plans.get(head)
        if plan is None:
            ask, form = decode(body, header_length, self._signature)
            self._remember(head, body, ask, form)
            return ask, form
        if len(body) - size != plan.size:
            raise bad(f"the body has {len(body) - size} binary bytes, but its inputs account for {plan.size}")
        raw = memoryview(body)[size:]
        feeds = {spec.name: tensors.from_raw(raw[start:end], shape, spec) for spec, shape, start, end in plan.parts}
        ask = plan.ask
        return Ask(ask.id, feeds, ask.outputs, ask.timeout_seconds, ask.priority, series=ask.series), plan.form

    def _remember(self, head: bytes, body: Payload, ask: Ask, form: Form) -> None:
        if ask.id or ask.extras is not None or len(head) > _PLAN_BYTES:
            return
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        parts = []
        start = 0
        for entry in orjson.loads(head)["inputs"]:
            size = _parameters(entry).get("binary_data_size")
            if size is None:
                return
            spec = self._signature.inputs[entry["name"]]
            parts.append((spec, ask.feeds[spec.name].shape, start, start + size))
            start += size
        kept = Form(form.binary, form.binary_all, form.plain, heads={})
        known = Ask("", {}, ask.outputs, ask.timeout_seconds, ask.priority, series=ask.series)
        self._plans[head] = _Plan(tuple(parts), len(body) - len(head), known, kept)


_PLANS, _PLAN_BYTES = 256, 4096


def decode(body: Payload, header_length: str | None, signature: Signature) -> tuple[Ask, Form]:
    """Parse and check a request against the model's signature. Raises RequestError: 400, and 413 for too many small things."""
    view = memoryview(body)
    size = _json_size(header_length, len(body))
    try:
        document = orjson.loads(of_few_lists(view[:size]))
    except orjson.JSONDecodeError as error:
        raise bad(f"the request is no JSON: {error}{_missing_header(body, header_length)}") from error
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list):
        raise bad("the request must be an object with a list 'inputs'")
    feeds, reads = _feeds(document["inputs"], view[size:], signature)
    names, form, asked = _outputs(document.get("outputs"), signature)
    # What the request as a whole asks for is a wish; what an input says of itself has to be understood.
    wishes = document.get("parameters")
    wishes = wishes if isinstance(wishes, dict) else {}
    (timeout, priority), series = scheduling(wishes), series_of(wishes)
    if wishes.get("binary_data_output") is True:
        form = Form(form.binary, binary_all=True, plain=form.plain)
    extras = Extras(reads, *asked) if reads or (asked is not _NOTHING and any(asked)) else None
    return Ask(identity_of(document.get("id")), feeds, names, timeout, priority, extras, series), form


def _missing_header(body: Payload, header_length: str | None) -> str:
    """The cure for a body whose tensors follow the JSON without a word of where they begin."""
    if header_length is not None or b"binary_data_size" not in bytes(body):
        return ""
    return f"; where binary tensors follow the JSON, the header {HEADER} must give the length of the JSON"


def _json_size(header_length: str | None, total: int) -> int:
    if header_length is None:
        return total
    # The length is bounded before it is a number: Python refuses to convert some thousands of digits.
    if not header_length.isascii() or not header_length.isdigit() or len(header_length) > 12 or int(header_length) > total:
        raise bad(f"{HEADER} must be a number from 0 to the body's length ({total}), not {header_length[:32]!r}")
    return int(header_length)


def _feeds(entries: list[Any], raw: memoryview, signature: Signature) -> tuple[dict[str, Tensor], dict[str, Read]]:
    feeds: dict[str, Tensor] = {}
    reads: dict[str, Read] = {}
    offset = 0
    for entry in entries:
        if not isinstance(entry, dict):
            raise bad("each input must be an object")
        spec = signature.input(entry.get("name"), {**feeds, **reads} if reads else feeds)
        shape = tensors.shape_of(spec, entry.get("datatype"), entry.get("shape"))
        parameters = _parameters(entry)
        size = parameters.get("binary_data_size")
        if REGION in parameters:
            reads[spec.name] = _read(entry, spec, shape, parameters)
            continue
        if size is None:
            feeds[spec.name] = _from_json(entry, shape, spec)
            continue
        if type(size) is not int or size < 0 or offset + size > len(raw):
            raise bad(f"input {spec.name!r}: binary_data_size {size!r} does not fit the {len(raw)} binary bytes of the body")
        if entry.get("data"):
            # Null and an empty list say nothing, and some clients write every field.
            raise bad(f"input {spec.name!r} has data besides binary_data_size; send one of them")
        feeds[spec.name] = tensors.from_raw(raw[offset : offset + size], shape, spec)
        offset += size
    if offset != len(raw):
        raise bad(f"the body has {len(raw)} binary bytes, but its inputs account for {offset}")
    signature.require_all({**feeds, **reads} if reads else feeds)
    return feeds, reads


def _read(entry: dict[str, Any], spec: TensorSpec, shape: tuple[int, ...], parameters: dict[str, Any]) -> Read:
    owner = f"input {spec.name!r}"
    if "data" in entry or "binary_data_size" in parameters:
        raise bad(f"{owner} has data besides shared memory; send one of them")
    return Read(spec, shape, span_of(parameters, owner))


def _parameters(owner: dict[str, Any]) -> dict[str, Any]:
    parameters = owner.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise bad(f"parameters must be an object, not {parameters!r}"[:200])
    return parameters


def _from_json(entry: dict[str, Any], shape: tuple[int, ...], spec: TensorSpec) -> Tensor:
    data = entry.get("data")
    if not isinstance(data, list):
        raise bad(f"input {spec.name!r} has neither data nor binary_data_size")
    if spec.datatype in datatypes.HALVES:
        raise bad(f"input {spec.name!r}: {spec.datatype} goes as binary data, since JSON has no exact form of it")
    try:
        array = tensors.of_texts(_flat(data)) if spec.datatype == "BYTES" else datatypes.from_values(data, spec.datatype)
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


_Asked = tuple[dict[str, Span], dict[str, int]]
_NOTHING: _Asked = ({}, {})


def _outputs(entries: object, signature: Signature) -> tuple[tuple[str, ...], Form, _Asked]:
    if entries is None or entries == []:
        return (), _PLAIN, _NOTHING
    names: list[str] = []
    writes: dict[str, Span] = {}
    classes: dict[str, int] = {}
    wishes: dict[object, set[str]] = {True: set(), False: set()}
    for entry in entries if isinstance(entries, list) else [None]:
        name = signature.output(entry.get("name") if isinstance(entry, dict) else None)
        names.append(name)
        wishes_of = _parameters(entry if isinstance(entry, dict) else {})
        output_extras(wishes_of, name, writes, classes)
        wish = wishes_of.get("binary_data")
        if isinstance(wish, bool):
            wishes[wish].add(name)
    form = Form(frozenset(wishes[True]), binary_all=False, plain=frozenset(wishes[False]))
    return tuple(dict.fromkeys(names)), form, (writes, classes)


def encode(
    ask: Ask, form: Form, answers: Tensors, *, model: str, version: str, placed: Mapping[str, Span] | None = None
) -> tuple[bytes, int | None]:
    """The response body, and the length of its JSON part when binary tensors follow it. What is `placed` went elsewhere."""
    known = form.heads
    if known is not None:
        shapes = tuple(array.shape for array in answers.values())
        if (head := known.get(shapes)) is not None:
            return b"".join([head, *(tensors.to_raw(array, datatypes.name_of(array)) for array in answers.values())]), len(head)
    chunks: list[bytes | memoryview] = []
    entries: list[dict[str, Any]] = []
    for name, array in answers.items():
        datatype = datatypes.name_of(array)
        entry: dict[str, Any] = {"name": name, "datatype": datatype, "shape": array.shape}
        if placed is not None and name in placed:
            entry["parameters"] = in_shared_memory(placed[name])
        elif form.is_binary(name):
            chunk = tensors.to_raw(array, datatype)
            entry["parameters"] = {"binary_data_size": len(chunk)}
            chunks.append(chunk)
        else:
            entry["data"] = _to_json(name, array, datatype)
        entries.append(entry)
    document: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": entries}
    if ask.id:
        document["id"] = ask.id
    head = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    # The sizes of strings are not in the shape, so a head that tells them can't be used again.
    if (
        known is not None
        and len(chunks) == len(entries)
        and len(known) < _PLANS
        and not any(a.dtype.kind in "OSU" for a in answers.values())
    ):
        known[shapes] = head
    return (b"".join([head, *chunks]), len(head)) if chunks else (head, None)


def _to_json(name: str, array: Tensor, datatype: str) -> object:
    if datatype == "BYTES":
        return as_json(array, lambda values: [tensors.as_bytes(value).decode(errors="replace") for value in values])
    if datatype in datatypes.HALVES:
        raise bad(f"output {name!r} is {datatype}: ask for it as binary data, since JSON has no exact form of it")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise bad(f"output {name!r} holds NaN or infinity, which JSON can't carry: ask for it as binary data")
    return as_json(np.ascontiguousarray(array), lambda values: values)
