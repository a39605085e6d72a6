"""Refusals for a deadline, with what the caller said: times come in three units, and a wrong one shows only in the number."""

from collections.abc import Mapping
from http import HTTPStatus

from inference_worker.errors import RequestError
from inference_worker.serve.ask import shortest_header
from inference_worker.serve.grpc_headers import TIMEOUT, timeout_of

Headers = Mapping[str, str]


def not_whole(parameter: float | None, call: float | None, headers: Headers) -> RequestError:
    """The refusal of a request that was late before it was whole. Times are seconds, by its parameter and by its call's headers."""
    text = f"the deadline of {_allowed(parameter, call, headers)} passed before the request was whole"
    return RequestError(HTTPStatus.GATEWAY_TIMEOUT, text)


def explained(error: RequestError, parameter: float | None, call: float | None, headers: Headers) -> RequestError:
    """A refusal with the time that the request allows, where that is its cause."""
    if error.status is not HTTPStatus.GATEWAY_TIMEOUT or (parameter is None and call is None):
        return error
    text = f"{error.message}; the request allows {_allowed(parameter, call, headers)}"
    return RequestError(error.status, text, retry_after_seconds=error.retry_after_seconds)


def _allowed(parameter: float | None, call: float | None, headers: Headers) -> str:
    if parameter is not None and (call is None or parameter <= call):
        return f"{parameter * 1e3:g} ms (parameter timeout, in microseconds)"
    # As the headers say it: what is left of it for one message of a stream may be below zero.
    if (whole := timeout_of(headers.get(TIMEOUT))) is not None:
        return f"{whole * 1e3:g} ms ({TIMEOUT})"
    _, name = shortest_header(headers) or (call, None)
    return f"{(call or 0.0) * 1e3:g} ms (header {name}, in milliseconds)"
