"""ONNX Runtime's faults in the words of whoever exported the model: a reason, one sentence, one cure.

The runtime puts its own source files and C++ signatures before the point; here the point comes first, and the rest is left out.
"""

import re

from inference_protocol.reasons import WorkerReason

_LETTERS = 400
_HEAD = re.compile(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_PREFIXES = re.compile(
    r"^(?:Load model from .*? failed:|Fatal error: |Exception during (?:initialization|loading): |This is an invalid model\. )"
)
_PLACE = re.compile(r"(?:/|\b)[\w./+-]+\.(?:cc|cpp|cuh?|h):\d+ ")
_NODE = re.compile(r'In Node, \("([^"]*)", (\w+), "([^"]*)".*?, Error (.*)')
_INFERENCE = re.compile(r"Node \(([^)]*)\) Op \((\w+)\) \[\w+\] (.*)")
_MEMORY_MARKS = ("AllocateRaw", "out of memory", "bad_alloc", "Failed to allocate")

_OPSET = re.compile(r"Opset (\d+) is under development.*Current official support for domain (\S+) is till opset (\d+)")
_IR = re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)")
_UNREGISTERED = re.compile(r"(\S*?):(\w+)\(-?\d+\) is not a registered function/op")
_NO_OPERATOR = re.compile(r"No Op registered for (\w+) with domain_version of (\d+)")
_NO_DOMAIN = re.compile(r"No opset import for domain '([^']*)'")
_NO_KERNEL = re.compile(r"Could not find an implementation for (\w+)\((\d+)\) node with name '([^']*)'")
_NO_TYPE = re.compile(r"MLDataType for: (\S+) is not currently registered")
_LOCALE = re.compile(r"Failed to construct locale with name:([^:\s]+)")
_LARGE = re.compile(r"Initializer '([^']*)' declares a size of (\d+) bytes which exceeds the (\d+) byte limit")
_DATA = re.compile(r"External data path .*?\"([^\"]+)\"")
_DAMAGED = (
    "protobuf parsing failed",
    "No graph was found",
    "verification failed",
    "does not match expected size",
    "codec can't decode",
)

_OTHER_FORMATS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", "a zip archive (PyTorch or Keras)"),
    (0, b"\x89HDF", "HDF5 (Keras)"),
    (0, b"GGUF", "GGUF"),
    (4, b"TFL3", "TensorFlow Lite"),
    (0, b"\x80\x02", "a pickle"),
    (0, b"\x80\x03", "a pickle"),
    (0, b"\x80\x04", "a pickle"),
    (0, b"\x80\x05", "a pickle"),
    (8, b'{"', "safetensors"),
    (0, b"\x1f\x8b", "compressed by gzip"),
)


_WITHOUT_ZIPMAP = {
    "skl2onnx": "skl2onnx: options={'zipmap': False}",
    "onnxmltools": "onnxmltools: zipmap=False",
}


def of_load(data: bytes, error: str, *, runtime: str) -> tuple[WorkerReason, str]:
    """Why a model can't be loaded. `error` is the runtime's word, `runtime` names it with its version."""
    return _of_file(data) or _of_version(error, runtime) or _of_operator(error, runtime) or _of_the_rest(error, runtime)


def of_type(name: str, kind: str, producer: str = "") -> tuple[WorkerReason, str]:
    """Why a model's input or output, whose type the runtime writes as `kind`, can't be passed on; `producer` exported the model."""
    cure = "export the model with plain tensors"
    if kind.startswith("seq(map"):
        how = _WITHOUT_ZIPMAP.get(producer.lower(), "without ZipMap")
        cure = f"export the classifier with its probabilities as a tensor ({how})"
    elif kind.startswith("optional"):
        cure = "export the model with a plain input, or without it"
    elif kind.startswith("seq"):
        cure = "export the model with one tensor in place of the sequence (ConcatFromSequence)"
    return WorkerReason.MODEL_TYPE_UNSUPPORTED, f"{name!r} is of type {kind}, which the protocol can't carry; {cure}"


def plain(error: object) -> str:
    """The runtime's words without its source files, signatures and numbers of faults: one line that ends with a whole word."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "") or type(error).__name__
    text = _HEAD.sub("", text)
    while (shorter := _PREFIXES.sub("", text)) != text:
        text = shorter
    while (found := _PLACE.search(text)) is not None:
        text = text[: found.start()] + _after_signature(text[found.end() :])
    text = _PREFIXES.sub("", text).strip()
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS].rsplit(' ', 1)[0]} …"


def no_memory(error: str) -> bool:
    """Whether the runtime says that it found no memory."""
    return any(mark in error for mark in _MEMORY_MARKS)


def _after_signature(text: str) -> str:
    """What follows the function's name, or its signature, at the begin of a text."""
    opening = text.find("(")
    name = text.split(" ", 1)
    # A signature has its first parenthesis within a qualified name: `void onnxruntime::f(int) message`, or `operator() message`.
    if (
        opening < 0
        or not re.fullmatch(r"[\w:~<>,&*\[\]\s]+", text[:opening])
        or (":" not in text[:opening] and " " in text[:opening])
    ):
        return name[1] if len(name) > 1 else text
    end = _closed(text, opening)
    while (more := re.match(r"::<?\w+", text[end:])) is not None:
        end = _closed(text, end + text[end:].find("(")) if "(" in text[end:] else end + more.end()
        end += len(re.match(r">?", text[end:]).group())  # type: ignore[union-attr]
    return re.sub(r"^\s*const\b", "", text[end:]).strip()


def _closed(text: str, opening: int) -> int:
    """The place behind the parenthesis that closes the one at `opening`; the end of the text where none does."""
    depth = 0
    for place in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    return len(text)


def _of_file(data: bytes) -> tuple[WorkerReason, str] | None:
    if not data:
        return WorkerReason.MODEL_CORRUPT, "the model file is empty; upload it again"
    if data.startswith(b"version https://git-lfs"):
        return (
            WorkerReason.MODEL_CORRUPT,
            "the model file is a Git LFS pointer, not the model; fetch it with git lfs pull and upload that",
        )
    for place, mark, kind in _OTHER_FORMATS:
        if data[place : place + len(mark)] == mark:
            return WorkerReason.MODEL_FORMAT_UNSUPPORTED, f"the model file is {kind}, not ONNX; export the model to ONNX"
    if data.lstrip()[:1] in (b"<", b"{"):
        return (
            WorkerReason.MODEL_FORMAT_UNSUPPORTED,
            "the model file is text (HTML, XML or JSON), not ONNX; was an error page saved instead of the model?",
        )
    return None


def _of_version(error: str, runtime: str) -> tuple[WorkerReason, str] | None:
    if found := _OPSET.search(error):
        has, domain, takes = found.groups()
        return (
            WorkerReason.MODEL_TOO_NEW,
            f"the model has opset {has} of {domain}, and {runtime} takes up to {takes}; export it with opset {takes} or below",
        )
    if found := _IR.search(error):
        has, takes = found.groups()
        return (
            WorkerReason.MODEL_TOO_NEW,
            f"the model has IR version {has}, and {runtime} takes up to {takes}; save it with ir_version {takes} or below",
        )
    return None


def _of_operator(error: str, runtime: str) -> tuple[WorkerReason, str] | None:
    reason = WorkerReason.MODEL_OPERATOR_UNSUPPORTED
    if found := _UNREGISTERED.search(error):
        domain, operator = found.groups()
        return reason, f"{runtime} has no operator {operator} of domain {domain or 'ai.onnx'}; export the model without it"
    if found := _NO_OPERATOR.search(error):
        return reason, f"{runtime} has no operator {found[1]} in opset {found[2]} of ai.onnx; export the model without it"
    if found := _NO_DOMAIN.search(error):
        return reason, f"the model has operators of domain {found[1]} and does not say which version; {runtime} has no such domain"
    if found := _NO_KERNEL.search(error):
        operator, version, node = found.groups()
        where = f" at node {node}" if node else ""
        return (
            reason,
            f"{runtime} can't compute {operator} (opset {version}) with the types that it has{where}; export it with others",
        )
    if found := _NO_TYPE.search(error):
        return (
            WorkerReason.MODEL_TYPE_UNSUPPORTED,
            f"the model has values of type {found[1]}, which {runtime} does not know; export it with another type",
        )
    if found := _LOCALE.search(error):
        return (
            WorkerReason.MODEL_LOCALE_MISSING,
            f"the model changes case by locale {found[1]}, which this image does not have; export it with locale en_US or C",
        )
    return None


def _of_the_rest(error: str, runtime: str) -> tuple[WorkerReason, str]:
    if found := _DATA.search(error):
        name = found[1].rpartition("/")[2]
        return (
            WorkerReason.MODEL_DATA_MISSING,
            f"the model keeps weights in {name}, which is not beside it; put both into one directory",
        )
    if found := _LARGE.search(error):
        name, size, limit = found.groups()
        return (
            WorkerReason.MODEL_TOO_LARGE,
            f"weight {name!r} has {size} bytes, and {runtime} takes {limit} there; split it, or save it in a smaller type",
        )
    if any(mark in error for mark in _DAMAGED):
        return WorkerReason.MODEL_CORRUPT, f"{runtime} can't read the model: {plain(error)}; is the file whole, and ONNX?"
    text = plain(error)
    if found := _NODE.search(text):
        name, operator, domain, why = found.groups()
        text = f"node {name or operator!r} ({operator}{f' of {domain}' if domain else ''}): {why}"
    elif found := _INFERENCE.search(text):
        name, operator, why = found.groups()
        text = f"node {name or operator!r} ({operator}): {why}"
    return WorkerReason.MODEL_INVALID, f"{runtime} refuses the model's graph: {text.rstrip('.')}; correct the export"
