"""Takes out of objects and logs what is secret, or the data of users, before a report leaves the cluster: pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

REDACTED = "REDACTED"

# Variables whose values tell nothing but how a worker was set up.
_PLAIN_VARIABLES = frozenset({"OMP_NUM_THREADS", "HOME", "PATH", "TMPDIR", "PYTHONUNBUFFERED", "NVIDIA_VISIBLE_DEVICES"})
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# The end of what a credential is called, in objects, logs, URLs and headers: `max_tokens` is none.
_CALLED = (
    r"(?:password|passwd|passphrase|pwd|secret|token|credentials?|authorization|cookie|signature|sig|jwt"
    r"|(?:api|access|private|secret|auth|account|encryption|shared|signing)[-_]?key(?:[-_]?id)?)"
)
_SECRET_KEY = re.compile(rf"(?i)(?:{_CALLED}$|password|passwd|credential|api_?key|private_?key)")
_ANNOTATION = 256
# What encodes a whole object: gzip in base64.
_PACKED = re.compile(r"H4sI[A-Za-z0-9+/]")
# Each reads a text once: whoever wrote a log may have written it for a pattern that begins anew at every letter.
_TEXTS = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REDACTED),
    # A user, and a password if there is one, in a URL. Some stores take a token as the user.
    (re.compile(r"(\w://)[^/\s\"'<>]+@"), rf"\1{REDACTED}@"),
    (re.compile(r"(?i)\b((?:authorization|cookie)\\?[\"']?[ \t]{0,8}[=:][ \t]{0,8}\\?[\"']?)[^\r\n\"'\\]+"), rf"\1{REDACTED}"),
    (re.compile(r"(?i)\b(bearer|basic|digest|negotiate|apikey) +[A-Za-z0-9._~+/=:-]{4,}"), rf"\1 {REDACTED}"),
    # What signs a URL.
    (re.compile(r"(?i)([?&;](?:x-amz-[\w-]{1,64}|x-goog-[\w-]{1,64}|key|code|policy|auth)=)[^&\s\"']+"), rf"\1{REDACTED}"),
    # `password=...`, `"token": "..."`, `?access_token=...`
    (
        re.compile(rf"(?i)({_CALLED}\\?[\"']?[ \t]{{0,8}}[=:][ \t]{{0,8}})(?:\\?\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;&}}]+)"),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), REDACTED),
    (re.compile(r"\b(?:hf_|gh[opsur]_|github_pat_|glpat-|xox[a-z]-|nvapi-|sk-|ya29\.|AIza)[A-Za-z0-9_-]{16,}"), REDACTED),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), REDACTED),
)


def text(found: str) -> str:
    """A text without what looks like a credential."""
    for pattern, instead in _TEXTS:
        found = pattern.sub(instead, found)
    return found


def document(found: Any) -> Any:
    """An object without the values of variables, without what is named like a secret, and without inputs and answers in place."""
    match found:
        case Mapping():
            return {key: _value(str(key), value, found) for key, value in found.items() if key != "managedFields"}
        case list() | tuple():
            return [_argument(one, before) for before, one in zip([None, *found], found, strict=False)]
        case str():
            return text(found)
    return found


def _value(key: str, value: Any, around: Mapping[str, Any]) -> Any:
    if key == "env" and isinstance(value, list):
        return [_variable(one) for one in value]
    if key == "annotations" and isinstance(value, Mapping):
        return {name: _annotation(str(name), one) for name, one in value.items() if name != _LAST_APPLIED}
    named = key == "value" and isinstance(around.get("name"), str) and _SECRET_KEY.search(around["name"])
    if (
        isinstance(value, str | int | float)
        and not isinstance(value, bool)
        and (named or _SECRET_KEY.search(key) or (key == "data" and "kind" not in around))
    ):
        return _hidden(value)
    return document(value)


def _argument(one: Any, before: Any) -> Any:
    """An entry of a list: a command may have a flag, and then its value."""
    if isinstance(one, str) and isinstance(before, str) and before.startswith("-") and _SECRET_KEY.search(before):
        return _hidden(one)
    return document(one)


def _annotation(name: str, value: Any) -> Any:
    """Tools keep whole objects in annotations, as they were applied: with variables and all."""
    if not isinstance(value, str):
        return document(value)
    if _SECRET_KEY.search(name) or len(value) > _ANNOTATION or _PACKED.match(value) or _is_object(value):
        return _hidden(value)
    return text(value)


def _is_object(value: str) -> bool:
    try:
        return isinstance(json.loads(value), dict | list)
    except (ValueError, RecursionError):
        return False


def _variable(one: Any) -> Any:
    if not isinstance(one, Mapping) or "value" not in one or one.get("name") in _PLAIN_VARIABLES:
        return document(one)
    return {**one, "value": REDACTED}


def _hidden(value: str | float) -> str:
    return f"{REDACTED} ({len(str(value))} characters)"
