"""ModelInfer messages to numpy and back. Raw contents are the quick form; typed contents are what hand-written clients send."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    in_shared_memory,
    output_extras,
    scheduling,
    series_of,
    span_of,
)
from inference_worker.serve.grpc_raw import HEAD_BYTES, InferRequest, with_raw
from inference_worker.serve.messages import ModelInferResponse
from inference_worker.serve.pieces import pieces

# Which field of the typed contents holds a datatype, and what its members are.
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


@dataclass(frozen=True, slots=True)
class Form:
    """How answers go out: `raw`, unless typed contents came, since most clients, Triton's among them, read nothing else.

    `heads` remembers what the answers to a request that comes again say beside their tensors, by the tensors' shapes.
    """

    raw: bool
    heads: dict[tuple[object, ...], bytes] | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a head asks for: (spec, shape) of each of its raw tensors, in their order."""

    parts: tuple[tuple[TensorSpec, tuple[int, ...]], ...]
    ask: Ask
    form: Form


class Decoder:
    """Checks requests against a model's signature, and remembers what heads meant that had only raw tensors behind them."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._plans: dict[bytes, _Plan] = {}

    def decode(self, asked: InferRequest) -> tuple[Ask, Form]:
        """A request. Raises RequestError(400)."""
        plan = self._plans.get(asked.head) if asked.head is not None else None
        if plan is None or len(asked.raw) != len(plan.parts):
            ask, form = decode(asked, self._signature)
            return ask, self._remember(asked, ask, form)
        raw, known = asked.raw, plan.ask
        feeds = {spec.name: tensors.from_raw(raw[at], shape, spec) for at, (spec, shape) in enumerate(plan.parts)}
        return Ask("", feeds, known.outputs, known.timeout_seconds, known.priority, series=known.series), plan.form

    def _remember(self, asked: InferRequest, ask: Ask, form: Form) -> Form:
        head, inputs = asked.head, asked.message.inputs
        if head is None or ask.id or ask.extras is not None or len(head) > HEAD_BYTES or len(asked.raw) != len(inputs):
            return form
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        kept = Form(form.raw, heads={})
        parts = tuple((self._signature.inputs[entry.name], ask.feeds[entry.name].shape) for entry in inputs)
        self._plans[head] = _Plan(parts, Ask("", {}, ask.outputs, ask.timeout_seconds, ask.priority, series=ask.series), kept)
        return kept


_PLANS = 256
# Of answers to one head: more than one only where what a tensor holds decides the shapes.
_SHAPES = 8


def decode(asked: InferRequest, signature: Signature) -> tuple[Ask, Form]:
    """Check a ModelInferRequest against the model's signature. Raises RequestError(400)."""
    request, raw = asked.message, asked.raw
    inputs = request.inputs
    reads: dict[str, Read] = {}
    if len(raw) != len(inputs):
        # Those in shared memory have no contents, and only here: a request without any costs no look for them.
        inputs, reads = _apart(inputs, signature)
        if raw and len(raw) != len(inputs):
            raise bad(f"{len(raw)} raw_input_contents for {len(inputs)} inputs; each input needs one")
    feeds: dict[str, Tensor] = {}
    for index, entry in enumerate(inputs):
        spec = signature.input(entry.name, feeds)
        shape = tensors.shape_of(spec, entry.datatype, list(entry.shape))
        if raw:
            if entry.HasField("contents"):
                raise bad(f"input {spec.name!r} has contents besides raw_input_contents; send one of them")
            feeds[spec.name] = tensors.from_raw(raw[index], shape, spec)
        else:
            feeds[spec.name] = _typed(entry, shape, spec)
    signature.require_all({**feeds, **reads} if reads else feeds)
    outputs, extras = _outputs(request.outputs, signature, reads) if request.outputs or reads else ((), None)
    wishes = parameters(request.parameters)
    (timeout, priority), series = scheduling(wishes), series_of(wishes)
    # Triton's client reads raw answers only, also to a request that has no tensor.
    return Ask(request.id, feeds, outputs, timeout, priority, extras, series), Form(bool(raw) or bool(reads) or not feeds)


def _apart(inputs: Any, signature: Signature) -> tuple[list[Any], dict[str, Read]]:
    """The inputs that came with the request, and those in shared memory. Raises RequestError(400)."""
    sent: list[Any] = []
    reads: dict[str, Read] = {}
    for entry in inputs:
        if REGION not in entry.parameters:
            sent.append(entry)
            continue
        spec = signature.input(entry.name, [*reads, *(other.name for other in sent)])
        if entry.HasField("contents"):
            raise bad(f"input {spec.name!r} has contents besides shared memory; send one of them")
        shape = tensors.shape_of(spec, entry.datatype, list(entry.shape))
        reads[spec.name] = Read(spec, shape, span_of(parameters(entry.parameters), f"input {spec.name!r}"))
    if reads and (twice := [entry.name for entry in sent if entry.name in reads]):
        raise bad(f"input {twice[0]!r} is given twice")
    return sent, reads


def _outputs(entries: Any, signature: Signature, reads: dict[str, Read]) -> tuple[tuple[str, ...], Extras | None]:
    writes: dict[str, Span] = {}
    classes: dict[str, int] = {}
    names = tuple(dict.fromkeys(_output(entry, signature, writes, classes) for entry in entries))
    return names, Extras(reads, writes, classes) if reads or writes or classes else None


def _output(entry: Any, signature: Signature, writes: dict[str, Span], classes: dict[str, int]) -> str:
    name = signature.output(entry.name)
    if entry.parameters:
        output_extras(parameters(entry.parameters), name, writes, classes)
    return name


def parameters(entries: Any) -> dict[str, object]:
    """A map of InferParameter as plain values."""
    found: dict[str, object] = {}
    for name in entries:
        choice = entries[name].WhichOneof("parameter_choice")
        found[name] = getattr(entries[name], choice) if choice is not None else None
    return found


def encode(ask: Ask, form: Form, answers: Tensors, *, model: str, version: str, placed: Mapping[str, Span] | None = None) -> bytes:
    """A serialised ModelInferResponse. What is `placed` went elsewhere."""
    if form.heads is None or not form.raw or placed:
        return _encoded(ask, answers, raw=form.raw, model=model, version=version, placed=placed)
    shapes = tuple((array.shape, array.dtype) for array in answers.values())
    head = form.heads.get(shapes)
    if head is None:
        head = _head(answers, model=model, version=version)
        if len(form.heads) < _SHAPES:
            form.heads[shapes] = head
    return with_raw(head, [tensors.to_raw(array, datatypes.name_of(array)) for array in answers.values()])


def _head(answers: Tensors, *, model: str, version: str) -> bytes:
    response = ModelInferResponse(model_name=model, model_version=version)
    for name, array in answers.items():
        response.outputs.add(name=name, datatype=datatypes.name_of(array), shape=array.shape)
    serialised: bytes = response.SerializeToString()
    return serialised


def _encoded(ask: Ask, answers: Tensors, *, raw: bool, model: str, version: str, placed: Mapping[str, Span] | None = None) -> bytes:
    response = ModelInferResponse(model_name=model, model_version=version, id=ask.id)
    kinds = {name: datatypes.name_of(array) for name, array in answers.items()}
    raw = raw or not datatypes.HALVES.isdisjoint(kinds.values())
    for name, array in answers.items():
        output = response.outputs.add(name=name, datatype=kinds[name], shape=array.shape)
        if placed is not None and name in placed:
            _tell_place(output, placed[name])
            if raw:
                # Raw contents are told apart by their number.
                response.raw_output_contents.append(b"")
        elif raw:
            response.raw_output_contents.append(bytes(tensors.to_raw(array, kinds[name])))
        elif kinds[name] == "BYTES":
            output.contents.bytes_contents.extend(tensors.as_bytes(value) for piece in pieces(array) for value in piece)
        else:
            contents = getattr(output.contents, _CONTENTS[kinds[name]])
            for piece in pieces(array):
                contents.extend(piece.tolist())
    serialised: bytes = response.SerializeToString()
    return serialised


def _tell_place(output: Any, span: Span) -> None:
    for key, value in in_shared_memory(span).items():
        if isinstance(value, str):
            output.parameters[key].string_param = value
        else:
            output.parameters[key].int64_param = value


def _typed(entry: Any, shape: tuple[int, ...], spec: TensorSpec) -> Tensor:
    if spec.datatype in datatypes.HALVES:
        raise bad(f"input {spec.name!r}: {spec.datatype} goes as raw_input_contents, since the typed contents have no form of it")
    field = _CONTENTS[spec.datatype]
    contents = entry.contents
    if foreign := [other.name for other, _ in contents.ListFields() if other.name != field]:
        raise bad(f"input {spec.name!r} is {spec.datatype}: its values go in {field}, not in {foreign[0]}")
    values = getattr(contents, field)
    if len(values) != math.prod(shape):
        raise bad(f"input {spec.name!r}: {len(values)} values in {field} do not fill shape {list(shape)}")
    if spec.datatype == "BYTES":
        return tensors.of_texts([tensors.text_of(value, i, spec.name) for i, value in enumerate(values)]).reshape(shape)
    if spec.dtype.kind in "iu":
        wide = np.array(values, dtype=np.uint64 if spec.datatype == "UINT64" else np.int64)
        bounds = np.iinfo(spec.dtype)
        if wide.size and (int(wide.min()) < bounds.min or int(wide.max()) > bounds.max):
            raise bad(f"input {spec.name!r} holds values beyond {spec.datatype} ({bounds.min} to {bounds.max})")
        return wide.astype(spec.dtype).reshape(shape)
    return np.array(values, dtype=spec.dtype).reshape(shape)
