"""What the queue holds: one object to reconcile, as a kind and its key. The word is controller-runtime's."""

from enum import StrEnum
from typing import NamedTuple

from inference_operator.state.objects import Key


class Kind(StrEnum):
    """What is reconciled."""

    JOB = "InferenceJob"
    POOL = "WarmPool"
    ENDPOINTS = "EndpointSlices"


class Request(NamedTuple):
    """One object to reconcile. The key of a warm pool is that of its model, the key of EndpointSlices that of their job."""

    kind: Kind
    key: Key

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return self.key.namespace

    @property
    def name(self) -> str:
        """The object's name; of a warm pool its model's."""
        return self.key.name

    def __str__(self) -> str:
        return f"{_WORDS[self.kind]}{self.key}"


_WORDS = {Kind.JOB: "", Kind.POOL: "warm pool ", Kind.ENDPOINTS: "endpoints of "}


def job_request(key: Key) -> Request:
    """Return the request to reconcile an InferenceJob."""
    return Request(Kind.JOB, key)


def pool_request(model: Key) -> Request:
    """Return the request to reconcile the warm pool of a model."""
    return Request(Kind.POOL, model)


def endpoints_request(job: Key) -> Request:
    """Return the request to reconcile the EndpointSlices of a serving job."""
    return Request(Kind.ENDPOINTS, job)
