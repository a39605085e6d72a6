"""A checked request on its way through a model, for both protocols: deadline, queue, answer, and what is counted and traced."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from inference_worker.batching.execute import Answer
from inference_worker.batching.queue import DEFAULT_PRIORITY, NEVER
from inference_worker.batching.ticket import Timing
from inference_worker.engines.engine import Tensors
from inference_worker.errors import InputsRefusedError, RequestError, unforeseen
from inference_worker.model import Model
from inference_worker.serve.ask import Ask, shortest
from inference_worker.serve.shapes import with_shapes
from inference_worker.serve.tenant_header import tenant_in
from inference_worker.serve.timeouts import explained, not_whole
from inference_worker.tracing import Span, Tracer

log = logging.getLogger(__name__)

LARGE_BYTES = 64 << 10
"""Taking so much JSON or so many strings apart takes milliseconds, which probes and other callers should not wait for."""

CLIENT_GONE = 499
"""How a request is counted whose caller left before the answer (nginx's number for it)."""

Done = Callable[[Tensors | RequestError, Timing], None]


class Mark(msgspec.Struct, frozen=True):
    """What an answer says beside its tensors: headers over HTTP, serialised parameters of a ModelInferResponse over gRPC."""

    headers: tuple[tuple[str, str], ...] = ()
    parameters: bytes = b""


_UNMARKED = Mark()


class Arrival(msgspec.Struct):
    """When a request came (time.monotonic), and what time its caller allows it.

    `whole` is when all of it was there: a caller's time counts from the first byte, and ours from the last. `headers` are its
    call's: for the words of a refusal, and the trace that it belongs to, in which `span` is its own. `mark` is its answer's.
    """

    instant: float
    timeout_seconds: float | None = None
    whole: float = 0.0
    headers: Mapping[str, str] = {}
    mark: Mark = _UNMARKED
    span: Span | None = None


class Answerer(Protocol):
    """What gets a request its answer."""

    def __call__(
        self, model: Model, ask: Ask, arrival: Arrival, deadline: float, finish: Callable[[Answer, Timing], None], /
    ) -> Callable[[], bool] | None:
        """Tell `finish` the answer, now or later. Returns what to call when its caller leaves, which says whether it waited.

        None where nobody waits any more. Raises RequestError for one that is refused at once.
        """
        ...


class Inference:
    """Hands requests to what answers them, a model's batcher by default, and the answers back."""

    def __init__(self, tracer: Tracer, answerer: Answerer | None = None) -> None:
        self._tracer = tracer
        self._answer = answerer or batched

    def ask(self, model: Model, ask: Ask, arrival: Arrival, done: Done) -> Callable[[], object] | None:
        """Run a request and tell `done`, now or later. Returns what to call when its caller leaves; None when it is answered.

        Raises RequestError for one that is refused at once.
        """
        timeout = shortest(arrival.timeout_seconds, ask.timeout_seconds)
        span = self._tracer.request(arrival.headers, model.name, model.version, arrived=arrival.instant, timeout_seconds=timeout)
        arrival.span = span

        def finish(answer: Answer, timing: Timing) -> None:
            if isinstance(answer, Exception):
                error = _explained(answer, model, ask, arrival) if isinstance(answer, RequestError) else _internal(answer)
                if span is not None:
                    span.end(timing, error)
                done(error, timing)
                return
            if span is not None:
                span.end(timing, None)
            done(answer, timing)

        deadline = NEVER if timeout is None else arrival.instant + timeout
        try:
            if deadline <= time.monotonic():
                raise not_whole(ask.timeout_seconds, arrival.timeout_seconds, arrival.headers)
            leave = self._answer(model, ask, arrival, deadline, finish)
        except RequestError as error:
            if span is not None:
                span.end(None, error)
            raise
        if leave is None or span is None:
            return leave

        def left() -> None:
            if leave():
                span.left()

        return left


def batched(
    model: Model, ask: Ask, arrival: Arrival, deadline: float, finish: Callable[[Answer, Timing], None]
) -> Callable[[], bool] | None:
    """Answer a request by a run. See Answerer."""
    batcher, tenant = model.batcher, tenant_in(arrival.headers)
    priority = max(ask.priority or DEFAULT_PRIORITY, tenant.priority)
    ticket = batcher.submit(ask.feeds, ask.outputs, finish, deadline=deadline, priority=priority, tenant=tenant, trace=arrival.span)
    if ticket is None:
        return None

    def leave() -> bool:
        waited = not ticket.over
        batcher.cancel(ticket)
        return waited

    return leave


def _explained(error: RequestError, model: Model, ask: Ask, arrival: Arrival) -> RequestError:
    if isinstance(error, InputsRefusedError):
        return with_shapes(error, ask.feeds, model.signature)
    return explained(error, ask.timeout_seconds, arrival.timeout_seconds, arrival.headers)


def _internal(error: Exception) -> RequestError:
    log.error("a request failed", exc_info=error)
    return unforeseen()
