"""Takes out of objects and logs what is secret, or the data of users, before a report leaves the cluster: pure."""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "REDACTED"

# Variables whose values tell nothing but how a worker was set up.
_PLAIN_VARIABLES = frozenset({"OMP_NUM_THREADS", "HOME", "PATH", "TMPDIR", "PYTHONUNBUFFERED", "NVIDIA_VISIBLE_DEVICES"})
_SECRET_KEY = re.compile(
    r"(?i)(password|passwd|secret(?!ref|name)|token(?!path|expiration|review)|credential|apikey|api_key|private_?key)"
)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_TEXTS = (
    # A user and a password in a URL.
    (re.compile(r"(\w+://)[^/\s:@]+:[^/\s@]+@"), rf"\1{REDACTED}@"),
    # What signs a URL.
    (re.compile(r"(?i)([?&](?:x-amz-\w+|x-goog-\w+|sig|signature|token|key|awsaccesskeyid)=)[^&\s\"']+"), rf"\1{REDACTED}"),
    (re.compile(r"(?i)\b(bearer|basic) [A-Za-z0-9._~+/=-]{8,}"), rf"\1 {REDACTED}"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), REDACTED),
    (re.compile(r"\bhf_[A-Za-z0-9]{20,}\b"), REDACTED),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), REDACTED),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL), REDACTED),
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
            return {
                key: _value(str(key), value, found) for key, value in found.items() if key not in {"managedFields", _LAST_APPLIED}
            }
        case list() | tuple():
            return [document(one) for one in found]
        case str():
            return text(found)
    return found


def _value(key: str, value: Any, around: Mapping[str, Any]) -> Any:
    if key == "env" and isinstance(value, list):
        return [_variable(one) for one in value]
    if isinstance(value, str) and (_SECRET_KEY.search(key) or (key == "data" and "kind" not in around)):
        return f"{REDACTED} ({len(value)} characters)"
    return document(value)


def _variable(one: Any) -> Any:
    if not isinstance(one, Mapping) or "value" not in one or one.get("name") in _PLAIN_VARIABLES:
        return document(one)
    return {**one, "value": REDACTED}
