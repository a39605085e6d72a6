"""Jobs from files and from flags: pure."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer
import yaml

from inference_client.calls import GROUP_VERSION, Raw
from inference_client.errors import InvalidError
from kubectl_inference.options import duration

_KINDS = frozenset({"InferenceJob", "InferenceModel"})


def from_text(text: str, where: str) -> list[Raw]:
    """The objects of a file in YAML or JSON. Raises InvalidError."""
    try:
        found = [one for one in yaml.safe_load_all(text) if one is not None]
    except yaml.YAMLError as error:
        raise InvalidError(f"{where} is no YAML: {error}") from error
    if not found:
        raise InvalidError(f"{where} holds no object")
    for one in found:
        if not isinstance(one, dict) or one.get("apiVersion") != GROUP_VERSION or one.get("kind") not in _KINDS:
            kind = one.get("kind") if isinstance(one, dict) else type(one).__name__
            raise InvalidError(
                f"{where} holds a {kind}; submit takes InferenceJobs and InferenceModels, kubectl apply takes the rest"
            )
    return found


def read(path: str) -> str:
    """A file's text, or that of stdin for `-`. Raises InvalidError."""
    try:
        return typer.get_text_stream("stdin").read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path} can't be read: {error}") from error


def deadline(text: str, now: datetime) -> str:
    """A deadline as the API takes it: an instant, or so long from now (`10m`). Raises BadParameter."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = now + timedelta(seconds=duration(text))
    if at.tzinfo is None:
        raise typer.BadParameter(f"{text} names no time zone: end it with Z for UTC")
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def job(name: str, fields: Mapping[str, Any]) -> Raw:
    """A job of fields by their path (`input.uri`); those that are None are left out."""
    spec: Raw = {}
    for path, value in fields.items():
        if value is None:
            continue
        *folders, last = path.split(".")
        place = spec
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value
    return {"apiVersion": GROUP_VERSION, "kind": "InferenceJob", "metadata": {"name": name}, "spec": spec}
