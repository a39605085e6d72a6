"""What a caller asks for, whatever protocol it came by, and the signature that it is checked against."""

from collections.abc import Container, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from inference_worker.engines.engine import Tensor, TensorSpec
from inference_worker.errors import RequestError

_LONGEST_SECONDS = 365 * 86400.0


class Span(msgspec.Struct, frozen=True):
    """Bytes of a registered region of shared memory."""

    region: str
    offset: int
    byte_size: int


class Read(msgspec.Struct, frozen=True):
    """An input that lies in shared memory."""

    spec: TensorSpec
    shape: tuple[int, ...]
    span: Span


class Extras(msgspec.Struct, frozen=True):
    """What few requests have: inputs and outputs in shared memory, and outputs of which the best classes are wanted, by name."""

    reads: dict[str, Read] = {}
    writes: dict[str, Span] = {}
    classes: dict[str, int] = {}


class Series(msgspec.Struct, frozen=True):
    """What a request belongs to: a stream of frames that are alike, or a sequence whose requests the model remembers."""

    stream: str = ""
    sequence: bool = False


_ALONE = Series()


class Ask(msgspec.Struct, frozen=True):
    """One request: feeds by input name and the outputs asked for (empty is all).

    `timeout_seconds` counts from the request's arrival; `priority` 1 is the most urgent. None where nothing was said.
    """

    id: str
    feeds: dict[str, Tensor]
    outputs: tuple[str, ...]
    timeout_seconds: float | None = None
    priority: int | None = None
    extras: Extras | None = None
    series: Series = _ALONE


class Signature:
    """A model's inputs and outputs by name."""

    __slots__ = ("_required", "has_texts", "inputs", "outputs")

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self.inputs = {spec.name: spec for spec in inputs}
        self.outputs = {spec.name: spec for spec in outputs}
        self._required = frozenset(spec.name for spec in inputs if not spec.optional)
        self.has_texts = any(spec.datatype == "BYTES" for spec in inputs)

    def input(self, name: object, known: Container[str]) -> TensorSpec:
        """The spec of an input that is not in `known` yet. Raises RequestError(400)."""
        spec = self.inputs.get(name) if isinstance(name, str) else None
        if spec is None:
            raise bad(f"unknown input {name!r}; the model has {', '.join(self.inputs)}")
        if name in known:
            raise bad(f"input {spec.name!r} is given twice")
        return spec

    def require_all(self, feeds: Mapping[str, object]) -> None:
        """Raise RequestError(400) unless every input is there that has no default."""
        if len(feeds) < len(self.inputs) and (missing := self._required - feeds.keys()):
            raise bad(f"missing input {', '.join(sorted(missing))}")

    def output(self, name: object) -> str:
        """The name of an output that there is. Raises RequestError(400)."""
        if not isinstance(name, str) or name not in self.outputs:
            raise bad(f"unknown output {name!r}; the model has {', '.join(sorted(self.outputs))}")
        return name


def bad(message: str) -> RequestError:
    """The caller's fault, in words for the caller."""
    return RequestError(HTTPStatus.BAD_REQUEST, message)


def identity_of(given: object) -> str:
    """A request's id. Raises RequestError(400)."""
    if isinstance(given, str):
        return given
    if given is None:
        return ""
    # Triton refuses numbers too, but clients send them, and their text is the same in every language.
    if type(given) in (int, float):
        return str(given)
    raise bad(f"id must be a string, not {given!r}"[:200])


def no_version(model: str, asked: str, served: str) -> str:
    """What a caller is told who asks for a version that there is not."""
    return f"{model} has no version {asked[:200]!r}; this worker serves {served}"


REGION = "shared_memory_region"
"""The parameter by which a tensor lies in shared memory; its neighbours say where."""

_LARGEST = 1 << 40


def span_of(parameters: Mapping[str, object], owner: str) -> Span:
    """The bytes of shared memory that a tensor's parameters name. Raises RequestError(400)."""
    region = parameters.get(REGION)
    if not isinstance(region, str) or not region:
        raise bad(f"{owner}: {REGION} must be the name of a region, not {region!r}"[:200])
    offset = _whole(parameters, "shared_memory_offset", owner, 0)
    return Span(region, offset, _whole(parameters, "shared_memory_byte_size", owner, None))


def in_shared_memory(span: Span) -> dict[str, Any]:
    """The parameters of an output that lies in shared memory."""
    found: dict[str, Any] = {REGION: span.region, "shared_memory_byte_size": span.byte_size}
    return {**found, "shared_memory_offset": span.offset} if span.offset else found


def _whole(parameters: Mapping[str, object], name: str, owner: str, default: int | None) -> int:
    value = parameters.get(name, default)
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise bad(f"{owner}: {name} must be a whole number from 0, not {value!r}"[:200])
    return value


def output_extras(parameters: Mapping[str, object], name: str, writes: dict[str, Span], classes: dict[str, int]) -> None:
    """Add what an output's parameters ask for beside its tensor. Raises RequestError(400)."""
    if count := _whole(parameters, "classification", f"output {name!r}", 0):
        classes[name] = count
    if REGION in parameters:
        if name in classes:
            raise bad(f"output {name!r}: classes do not go to shared memory; ask for one of them")
        writes[name] = span_of(parameters, f"output {name!r}")


def load_fault(parameters: Iterable[str]) -> str | None:
    """Why a load or unload request asks for more than the model as its job has it; None when it does not."""
    foreign = set(parameters) - {"unload_dependents"}
    if "config" in foreign:
        return "parameter 'config' is not supported: the job and the model's file make the configuration; set batchSize in the job"
    if foreign:
        return f"parameter {min(foreign)!r} is not supported: a model comes from where its job says, verified by digest"
    return None


def scheduling(parameters: Mapping[str, object]) -> tuple[float | None, int | None]:
    """`timeout` (microseconds; 0 is none) and `priority` (0 is the default), as Triton's clients send them.

    Returns seconds and priority. Raises RequestError(400) for what is no number of that kind.
    """
    timeout, priority = parameters.get("timeout"), parameters.get("priority")
    for name, value in (("timeout", timeout), ("priority", priority)):
        if value is not None and (type(value) is not int or not 0 <= value < 2**64):
            raise bad(f"parameter {name} must be a whole number from 0, not {value!r}"[:200])
    seconds = timeout / 1e6 if isinstance(timeout, int) and timeout else None
    return seconds, priority if isinstance(priority, int) and priority else None


_STREAM_LETTERS = 256


def series_of(parameters: Mapping[str, object]) -> Series:
    """What `stream_id` and `sequence_id` say; 0 and "" are none, as with Triton. Raises RequestError(400) for no name."""
    stream, sequence = parameters.get("stream_id"), parameters.get("sequence_id")
    if stream is None or type(stream) is int:
        stream = "" if stream is None else str(stream)
    if not isinstance(stream, str) or len(stream) > _STREAM_LETTERS:
        raise bad(f"parameter stream_id must be a name of at most {_STREAM_LETTERS} characters, not {stream!r}"[:200])
    return Series(stream, bool(sequence)) if stream or sequence else _ALONE


def timeout_of_headers(headers: Mapping[str, str]) -> float | None:
    """Seconds that a caller or its proxy allows, by HTTP headers in milliseconds; the shortest. Raises RequestError(400)."""
    found = shortest_header(headers)
    return None if found is None else found[0]


def shortest_header(headers: Mapping[str, str]) -> tuple[float, str] | None:
    """The seconds and the name of the header that allows least; None where none says anything. Raises RequestError(400)."""
    return min(((_seconds(name, headers[name]), name) for name in TIMEOUT_HEADERS if name in headers), default=None)


TIMEOUT_HEADERS = ("inference-timeout-ms", "x-envoy-expected-rq-timeout-ms")


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text) / 1e3
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_SECONDS:
        raise bad(f"{name} must be a number of milliseconds, not {text[:32]!r}")
    return seconds


def shortest(*seconds: float | None) -> float | None:
    """The least of those that are set."""
    return min((one for one in seconds if one is not None), default=None)
