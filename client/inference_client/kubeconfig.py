"""Which kubeconfig, context and namespace are meant: chosen as kubectl does.

The `kubernetes` package chooses otherwise: of several files in KUBECONFIG the last one's current context wins there, and an empty
KUBECONFIG names no file.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from inference_client.errors import ConfigurationError

DEFAULT = "~/.kube/config"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What leads to a cluster; `files` is as the package takes it, and `program` is what gives credentials, or empty."""

    files: str
    context: str
    namespace: str
    program: str


def files_of(kubeconfig: str | None) -> str:
    """The files that are meant, as KUBECONFIG lists them."""
    return kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT


def chosen(kubeconfig: str | None, context: str | None) -> Chosen:
    """The context that is named, or else the first one that a file calls its current. Raises ConfigurationError."""
    files = files_of(kubeconfig)
    documents = list(_documents(files))
    name = context or next((str(one["current-context"]) for one in documents if one.get("current-context")), "")
    if not name and documents:
        raise unconfigured(files, "no current-context is set")
    found = _named(documents, "context", name)
    user = _named(documents, "user", str(found.get("user", "")))
    program = user.get("exec")
    return Chosen(
        files,
        name,
        str(found.get("namespace") or "default"),
        str(program.get("command", "")) if isinstance(program, dict) else "",
    )


def unconfigured(files: str, why: object) -> ConfigurationError:
    """The error for a kubeconfig that leads nowhere."""
    words = str(why).rstrip(".")
    return ConfigurationError(f"{files}: {words}; name another file by --kubeconfig or KUBECONFIG, or another --context")


def without_credentials(given: Chosen) -> ConfigurationError:
    """The error for a program that gave no credentials: kubectl asks nothing as nobody either."""
    words = f"{given.program!r} gave no credentials for context {given.context!r}"
    return ConfigurationError(f"{given.files}: {words}; run it by hand to see why, or name another --context")


def _documents(files: str) -> Iterator[dict[str, Any]]:
    """What those of the files hold that are there."""
    for each in files.split(os.pathsep):
        path = Path(each).expanduser()
        if not each or not path.exists():
            continue
        try:
            found = yaml.safe_load(path.read_bytes())
        except (OSError, yaml.YAMLError) as error:
            raise unconfigured(each, _first_line(error)) from error
        if found is not None and not isinstance(found, dict):
            raise unconfigured(each, "it is no kubeconfig")
        yield found or {}


def _first_line(error: Exception) -> str:
    return f"it can't be read: {str(error).splitlines()[0]}"


def _named(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """The first entry of a name; nothing where there is none, which the package tells."""
    for one in documents:
        entries = one.get(f"{kind}s")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(kind), dict):
                found: dict[str, Any] = entry[kind]
                return found
    return {}
