"""Faults that a worker can name.

StoppedError             ends what waits when the worker is told to stop
WorkerError(reason)      ends the worker; goes to the operator as the condition's reason and message
RequestError(status)     ends one request; goes to its caller
"""

from http import HTTPStatus
from traceback import walk_tb
from typing import TypeVar

from inference_protocol.messages import Rival
from inference_protocol.reasons import PERMANENT, WorkerReason

E = TypeVar("E", bound=BaseException)


class StoppedError(Exception):
    """The worker was told to stop while it waited: for a lock, or for what it fetches."""


class WorkerError(Exception):
    """The worker can't do its work. The message says what is wrong and what to do. `rival` has claimed the output, if one has."""

    def __init__(self, reason: WorkerReason, message: str, *, rival: Rival | None = None) -> None:
        super().__init__(message)
        self.rival = rival
        self.reason = reason
        self.message = message

    @property
    def permanent(self) -> bool:
        """Whether another attempt would meet the same fault."""
        return self.reason in PERMANENT


def out_of_memory(what: str, *, on_cpu: bool) -> WorkerError:
    """No memory `what` says for what, with the cure: a job sets the host's memory, and its accelerator class the device's."""
    of_device = "lower batchSize, raise deviceMemory of the accelerator class, or use a class with more device memory"
    of_host = "raise the memory limit (resources.limits.memory)"
    cure = f"{of_host}, or lower batchSize" if on_cpu else f"{of_device}; if the host's memory is short, {of_host}"
    return WorkerError(WorkerReason.OUT_OF_MEMORY, f"no memory {what}; {cure}")


class RequestError(Exception):
    """One request can't be answered; others are not touched. `retry_after_seconds` says when asking again makes sense."""

    def __init__(self, status: HTTPStatus, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class InputsRefusedError(RequestError):
    """The model's own runtime refused what a caller sent."""

    def __init__(self, why: str) -> None:
        super().__init__(HTTPStatus.BAD_REQUEST, f"the model refused the request: {why}")


def unforeseen() -> RequestError:
    """What a caller is told of a fault that nobody thought of. Whoever makes one has logged the fault."""
    return RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "the worker failed on this request; its log says why")


def let_go(error: E) -> E:
    """Return an error that somebody keeps, without its tracebacks; a note for logs says where it was raised.

    A traceback has the frames of the whole stack, and one of them has what keeps the error: feeds and bodies would stay until the
    garbage collector comes, which is seldom.
    """
    each: BaseException | None = error
    while each is not None and each.__traceback__ is not None:
        places = [f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}" for frame, line in walk_tb(each.__traceback__)]
        each.__traceback__ = None
        # The same one may be raised again and again.
        if not hasattr(each, "__notes__"):
            each.add_note("\n".join(["raised at", *places]))
        each = each.__cause__ or each.__context__
    return error
