"""`python -m dev.client`: the client's types and texts, made from the API that the operator defines.

The client imports nothing of the operator: who installs it wants neither kopf nor a worker. So that nothing is written twice, its
types (inference_client/api.py) and what reasons mean (inference_client/texts.json) are written from the code; a test compares them.
"""

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from inference_operator.api import job, job_status, model
from inference_operator.api.condition_types import ConditionType
from inference_operator.api.conditions import NO_PLACE
from inference_operator.api.events import EventReason
from inference_operator.api.reasons import Reason
from inference_protocol.reasons import ReasonText, WorkerReason

ROOT = Path(__file__).resolve().parents[1]
TYPES = ROOT / "client" / "inference_client" / "api.py"
TEXTS = ROOT / "client" / "inference_client" / "texts.json"

Schema = dict[str, Any]

_WIDTH, _LONGEST = 120, 132
_ROOTS = (job.InferenceJobSpec, job_status.InferenceJobStatus, model.InferenceModelSpec, model.InferenceModelStatus)
_HEAD = '''"""The types of the API `inference.myorg/v1`, frozen. Made by `make crds`; edit the operator's api/ instead.

All types in one module, longer than others, as in the reference. Fields are strings where the API has a closed list, so that
the word of a newer operator is read as it is; the classes with the list's name hold the words.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What all types of the API are: frozen, compared by value, written in camelCase without what is not set."""
'''
_TAIL = '''

class Metadata(Value, frozen=True, kw_only=True):
    """What the API server knows of every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class InferenceJob(Value, frozen=True, kw_only=True):
    """One piece of inference work with a deadline."""

    api_version: str = "inference.myorg/v1"
    kind: str = "InferenceJob"
    metadata: Metadata
    spec: InferenceJobSpec
    status: InferenceJobStatus = InferenceJobStatus()


class InferenceModel(Value, frozen=True, kw_only=True):
    """A model with its versions."""

    api_version: str = "inference.myorg/v1"
    kind: str = "InferenceModel"
    metadata: Metadata
    spec: InferenceModelSpec
    status: InferenceModelStatus = InferenceModelStatus()
'''


def types() -> str:
    """The text of inference_client/api.py."""
    definitions: dict[str, Schema] = {}
    for root in _ROOTS:
        schema = TypeAdapter(root).json_schema(by_alias=True, mode="validation")
        definitions |= schema.pop("$defs", {})
        definitions[root.__name__] = schema
    order = _ordered(definitions)
    return _formatted(_HEAD + "".join(_declared(name, definitions) for name in order) + _TAIL)


def _ordered(definitions: dict[str, Schema]) -> list[str]:
    """What a type names stands before it, so that annotations are plain."""
    placed: dict[str, None] = {}

    def place(name: str) -> None:
        for used in sorted(set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(definitions[name])))):
            place(used)
        placed.setdefault(name)

    for name in sorted(definitions):
        place(name)
    return list(placed)


def _declared(name: str, definitions: dict[str, Schema]) -> str:
    schema = definitions[name]
    bases = "StrEnum" if "enum" in schema else "Value, frozen=True, kw_only=True"
    text = f"\n\nclass {name}({bases}):\n{_docstring(schema['description'])}\n"
    if "enum" in schema:
        return text + "".join(f'\n    {_constant(word)} = "{word}"' for word in schema["enum"]) + "\n"
    required = set(schema.get("required", ()))
    for field, child in schema["properties"].items():
        default = "" if field in required else f" = {_default(child, definitions)}"
        text += f"{_comment(child.get('description', ''))}\n    {_snake(field)}: {_annotation(child, definitions)}{default}"
    return text + "\n"


def _docstring(text: str) -> str:
    line = f'    """{text}"""'
    if len(line) <= _LONGEST:
        return line
    summary, _, rest = text.partition(". ")
    return f'    """{summary}.\n\n{textwrap.indent(textwrap.fill(rest, _WIDTH), "    ")}\n    """'


def _comment(text: str) -> str:
    return "".join(f"\n    # {line}" for line in textwrap.wrap(text, _WIDTH))


def _annotation(schema: Schema, definitions: dict[str, Schema]) -> str:
    match schema:
        case {"anyOf": [inner, {"type": "null"}]}:
            return f"{_annotation(inner, definitions)} | None"
        case {"$ref": reference}:
            name = str(reference).rsplit("/", 1)[1]
            return "str" if "enum" in definitions[name] else name
        case {"type": "array", "items": items}:
            return f"tuple[{_annotation(items, definitions)}, ...]"
        case {"type": "object", "additionalProperties": {"type": "string"}}:
            return "Mapping[str, str]"
        case {"type": "object"}:
            return "Mapping[str, Any]"
        case {"type": "string", "format": "date-time"}:
            return "datetime"
        case {"type": kind}:
            return {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[kind]
    raise ValueError(f"no type for {schema}")


def _default(schema: Schema, definitions: dict[str, Schema]) -> str:
    match _annotation(schema, definitions):
        case kind if kind.startswith("tuple"):
            return "()"
        case kind if kind.startswith("Mapping"):
            return "{}"
    default = schema.get("default")
    return json.dumps(default) if isinstance(default, str) else repr(default)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _constant(word: str) -> str:
    return _snake(word).upper()


def texts() -> str:
    """The text of inference_client/texts.json: what each word of a closed list means, and its cure."""
    document = {
        "conditions": {kind.value: kind.meaning for kind in ConditionType},
        "reasons": {word.value: _text(word.text) for word in (*Reason, *WorkerReason)},
        "events": {word.value: _text(word.text) for word in EventReason},
        "noPlace": sorted(NO_PLACE),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _text(text: ReasonText) -> dict[str, Any]:
    return {"meaning": text.meaning, "cure": text.cure, "final": text.final}


def _formatted(text: str) -> str:
    ruff = (sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TYPES), "-")
    return subprocess.run(ruff, cwd=ROOT, input=text, capture_output=True, text=True, check=True).stdout


def files() -> Iterator[tuple[Path, str]]:
    """Each file that is made, and its text."""
    yield TYPES, types()
    yield TEXTS, texts()


def main() -> None:
    """Write both."""
    for path, text in files():
        path.write_text(text)


if __name__ == "__main__":
    main()
