"""What can go wrong between the operator and those that it talks to.

OperatorError
├── RetryableError     try the same again later (network, 429, 5xx)
│   └── WorkerUnreachableError  a worker pod did not answer, or not now
├── ConflictError      what we knew is out of date: look again, then decide again (409, 412)
├── NotFoundError      the object is gone (404)
├── OverloadedError    so much is asked of the operator that it asks no further: who asked comes again
├── ExporterError      a meter did not answer, or nothing that can be read
├── PolicyError        a learned policy can't be used
└── RefusedError       the API server says no for good (400, 403, 422); `reason` and message go into a condition
"""


class OperatorError(Exception):
    """Root of all."""


class RetryableError(OperatorError):
    """Try again later; `after_seconds` when the server said how much later."""

    def __init__(self, message: str, *, after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class WorkerUnreachableError(RetryableError):
    """A worker pod could not be asked."""


class ConflictError(OperatorError):
    """Decided on an old view."""


class NotFoundError(OperatorError):
    """The object is gone."""


class OverloadedError(OperatorError):
    """What the operator does for callers of this kind at one time is used up."""


class ExporterError(OperatorError):
    """A meter could not be read; what it would have told stays unknown."""


class PolicyError(OperatorError):
    """A learned policy can't be loaded, or did not answer as it promised."""


class RefusedError(OperatorError):
    """The API server refuses; trying the same again would be refused again."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
