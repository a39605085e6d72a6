"""What callers are told: an answer, or a fault in words that are meant for them."""

import logging
from http import HTTPStatus

from inference_worker.batching.admission import engine_away
from inference_worker.batching.execute import Answer
from inference_worker.batching.ticket import Done, Timing
from inference_worker.engines.engine import EngineUnavailableError, RunCancelledError
from inference_worker.errors import InputsRefusedError, RequestError, unforeseen

log = logging.getLogger(__name__)


def hand_over(answer: Answer, timing: Timing, done: Done) -> None:
    """Tell a caller. One that fails on what it is told must not take the queue with it."""
    try:
        done(told(answer) if isinstance(answer, Exception) else answer, timing)
    except Exception:
        log.exception("an answer could not be handed over")


def told(error: Exception) -> RequestError:
    """What a caller is told of a fault."""
    match error:
        case RequestError():
            return error
        case EngineUnavailableError():
            return engine_away(str(error))
        case RunCancelledError():
            return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the run was cancelled")
        case MemoryError():
            return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, f"no memory for this request: {error}")
        case ValueError():
            return InputsRefusedError(str(error))
        case RuntimeError():
            return RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, f"the model failed: {error}")
    log.error("a run failed", exc_info=error)
    return unforeseen()
