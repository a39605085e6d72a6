"""What can go wrong, one tree: catch `ClientError` for all of it.

ClientError
├── ConfigurationError      no kubeconfig, no such context, or credentials that can't be had
├── UnavailableError        the API server doesn't answer, or is too busy; try again
├── ForbiddenError          it knows who asks, or doesn't, and refuses
├── NotFoundError           there is no such object, or the CustomResourceDefinitions are not installed
├── AlreadyExistsError      there is an object of this name
├── ConflictError           somebody else has changed the object meanwhile; read it again
├── ExpiredError            a watch asked for what the API server has forgotten; list again
├── InvalidError            the API server refuses the object
├── UnreadableError         the object has not the shape that this client knows; `raw` is it
├── JobFailedError          the job that was waited for can't come so far without a change; `job` is it
└── WaitTimeoutError        it has not come so far in time; `job` is how it stands
"""

import json
from typing import Any

from inference_client.api import InferenceJob


class ClientError(Exception):
    """Anything that this client raises."""


class ConfigurationError(ClientError):
    """There is no way to a cluster."""


class UnavailableError(ClientError):
    """The API server doesn't answer, or not now."""


class ForbiddenError(ClientError):
    """The API server doesn't let whoever asks do this."""


class NotFoundError(ClientError):
    """There is no such object."""


class AlreadyExistsError(ClientError):
    """There is an object of this name already."""


class ConflictError(ClientError):
    """The object was changed meanwhile."""


class ExpiredError(ClientError):
    """The version that a watch began with is forgotten."""


class InvalidError(ClientError):
    """The API server refuses the object."""


class UnreadableError(ClientError):
    """An object that has not the API's shape as this client knows it: of another version, or written by somebody else."""

    def __init__(self, raw: dict[str, Any], message: str) -> None:
        super().__init__(message)
        self.raw = raw

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.raw.get("metadata", {}).get("name", ""))

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.raw.get("metadata", {}).get("namespace", ""))


class JobFailedError(ClientError):
    """A job has ended badly, or can't go on without a change."""

    def __init__(self, job: InferenceJob, message: str) -> None:
        super().__init__(message)
        self.job = job


class WaitTimeoutError(ClientError):
    """A job has not come so far in time."""

    def __init__(self, job: InferenceJob | None, message: str) -> None:
        super().__init__(message)
        self.job = job


_BY_CODE: dict[int, type[ClientError]] = {
    400: InvalidError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    422: InvalidError,
}


def refusal(code: int, body: bytes | dict[str, object]) -> ClientError:
    """The error for an answer of the API server that is no success, in its own words."""
    try:
        status = body if isinstance(body, dict) else json.loads(body)
        reason, message = status.get("reason"), str(status.get("message") or status)
    except (ValueError, AttributeError):
        # A proxy in between answers in its own format.
        reason, message = None, str(body)[:500]
    if reason == "AlreadyExists":
        return AlreadyExistsError(message)
    return _BY_CODE.get(code, UnavailableError)(message or f"the API server answers {code}")
