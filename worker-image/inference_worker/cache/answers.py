"""What stands before the batcher where a job asks for a cache: who is answered without a run, and what is kept of runs.

An answer is kept for the bytes of its inputs. A request of a stream whose input is an image goes by likeness instead: its frames
never come again, and would only take the room of what does.
"""

import logging
import time
from collections.abc import Callable

from inference_protocol.messages import AnswerCache as Told
from inference_worker.batching.execute import Answer
from inference_worker.batching.tenants import NOBODY
from inference_worker.batching.ticket import Done, Timing
from inference_worker.cache.counts import CacheCounts, Kind, Occupied, Result
from inference_worker.cache.flights import Flights
from inference_worker.cache.keys import STREAM_HEADER, Asked, Key, asked, key_of
from inference_worker.cache.known import Known, known, size_of, spared
from inference_worker.cache.lru import Bounds, Lru
from inference_worker.cache.marks import COALESCED, HIT, reuse
from inference_worker.cache.streams import Image, Look, Scene, Streams, image_of, scene_of
from inference_worker.cache.waiting import Waiting
from inference_worker.engines.engine import Tensors
from inference_worker.metrics import ModelMetrics
from inference_worker.model import Model
from inference_worker.serve.ask import Ask
from inference_worker.serve.background import Background
from inference_worker.serve.inference import Arrival
from inference_worker.serve.tenant_header import tenant_in

log = logging.getLogger(__name__)

_INLINE_BYTES = 128 << 10
"""So much is hashed in a tenth of a millisecond; more is hashed beside the event loop."""

_INLINE_VALUES = 4 << 10
"""The same of a frame that is compared."""

_TEXT_BYTES = 64

_MOST_KEEPING = 8
"""Frames that are made ready to be compared with at a time: the memory of those whose callers are answered is nobody's."""


class AnswerCache:
    """Answers requests of the worker's models by what is kept, by what runs, or by a run. Implements Answerer and Listener."""

    def __init__(self, told: Told, metrics: ModelMetrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is the batcher's."""
        self._clock = clock
        self._background = Background()
        self._answers: Lru[Key, Known] = Lru(Bounds(told.max_bytes, told.max_age_seconds))
        self._most_bytes = told.max_bytes
        self._streams = Streams(told.frames) if told.frames is not None else None
        self._flights = Flights(self, clock)
        self._keeping = 0
        self._counts = metrics.cache = CacheCounts(self._occupied)

    def __call__(self, model: Model, ask: Ask, arrival: Arrival, deadline: float, finish: Done) -> Callable[[], bool] | None:
        """See Answerer."""
        now, tenant = self._clock(), tenant_in(arrival.headers)
        if tenant is not NOBODY:
            # To hash and to compare costs, too: a quota holds before it, as it does before a run.
            model.batcher.counts.tenants.require(tenant, now)
        waiting = Waiting(model, ask, arrival, now, deadline, finish, tenant)
        if model.facts.not_cached_because or ask.series.sequence:
            self._go_past(waiting)
        else:
            self._answer(waiting)
        return None if waiting.over else waiting.leave

    def _answer(self, waiting: Waiting) -> None:
        model, ask, headers = waiting.model, waiting.ask, waiting.arrival.headers
        wanted = asked(waiting.tenant.name, model.name, model.version, model.facts, ask.outputs)
        stream = ask.series.stream or headers.get(STREAM_HEADER, "")
        image = image_of(ask.feeds) if stream and self._streams is not None else None
        if image is None:
            self._by_bytes(wanted, waiting)
        else:
            self._by_likeness(wanted, stream, image, waiting)

    def _saved(self, result: Result, seconds: float, waiting: Waiting) -> None:
        """Count a request that had no run of its own. Its rows count against a quota all the same."""
        self._counts.saved(result, seconds)
        if waiting.tenant is not NOBODY:
            batcher = waiting.model.batcher
            batcher.counts.tenants.spared(waiting.tenant, batcher.layout.rows(waiting.ask.feeds))

    def _go_past(self, waiting: Waiting) -> None:
        self._counts.results[Result.PAST] += 1
        waiting.run_alone(waiting.tell)

    def _occupied(self) -> dict[Kind, Occupied]:
        kept = self._answers
        answers = Occupied(kept.size, len(kept), kept.outgrown, kept.expired)
        return {Kind.ANSWERS: answers, **({Kind.FRAMES: self._streams.occupied} if self._streams is not None else {})}

    # by the bytes of the inputs

    def _by_bytes(self, wanted: Asked, waiting: Waiting) -> None:
        feeds = waiting.ask.feeds

        def found(key: Key) -> None:
            if not waiting.over:
                self._look_up(key, waiting)

        self._background.make(
            lambda: key_of(wanted, feeds), found, lambda error: self._fail(waiting, error), apart=_bytes_of(feeds) > _INLINE_BYTES
        )

    def _look_up(self, key: Key, waiting: Waiting) -> None:
        now = self._clock()
        kept = self._answers.get(key, now)
        if kept is None:
            self._flights.join(key, waiting)
            return
        self._saved(Result.HIT, kept.value.seconds, waiting)
        waiting.arrival.mark = HIT
        waiting.tell_late(kept.value.answer, kept.value.rows, now)

    def began(self, waiting: Waiting) -> None:  # noqa: ARG002 -- see Listener
        """See Listener."""
        self._counts.results[Result.MISS] += 1

    def answered(self, key: Key, waiting: Waiting, answer: Tensors, timing: Timing) -> None:
        """See Listener."""
        if size_of(answer) <= self._most_bytes:
            entry = known(waiting, answer, timing)
            self._answers.put(key, entry, entry.size, self._clock())

    def share(self, waiting: Waiting, answer: Tensors, timing: Timing) -> None:
        """See Listener."""
        self._saved(Result.COALESCED, spared(waiting, timing), waiting)
        waiting.arrival.mark = COALESCED
        waiting.tell_late(answer, timing.rows, self._clock())

    # by likeness

    def _by_likeness(self, wanted: Asked, stream: str, image: Image, waiting: Waiting) -> None:
        streams = self._streams
        assert streams is not None, "asked before"

        def found(look: Look) -> None:
            if waiting.over:
                return
            if look.scene is None:
                self._compute(streams, look, image, waiting)
                return
            now, entry = self._clock(), look.scene.known
            streams.used(look, now)
            self._saved(Result.REUSE, entry.seconds, waiting)
            waiting.arrival.mark = reuse(look.likeness, look.age)
            waiting.tell_late(entry.answer, entry.rows, now)

        self._background.make(
            lambda: streams.look(wanted, stream, image, self._clock()),
            found,
            lambda error: self._fail(waiting, error),
            apart=image.array.size > _INLINE_VALUES or _bytes_of(image.others) > _INLINE_BYTES,
        )

    def _compute(self, streams: Streams, look: Look, image: Image, waiting: Waiting) -> None:
        def done(answer: Answer, timing: Timing) -> None:
            waiting.tell(answer, timing)
            if not isinstance(answer, Exception):
                self._keep(streams, look, image, waiting, (answer, timing))

        self.began(waiting)
        waiting.run_alone(done)

    def _keep(self, streams: Streams, look: Look, image: Image, waiting: Waiting, came: tuple[Tensors, Timing]) -> None:
        """Keep a frame with its answer, once its caller has it; unless so many are being kept that they would pile up."""
        if self._keeping >= _MOST_KEEPING:
            return
        self._keeping += 1
        now = self._clock()

        def kept(scene: Scene | None) -> None:
            self._keeping -= 1
            if scene is not None:
                streams.put(look, scene, now)

        def failed(error: Exception) -> None:
            self._keeping -= 1
            log.error("a frame could not be kept", exc_info=error)

        self._background.make(lambda: scene_of(look, image, known(waiting, *came)), kept, failed, apart=True)

    def _fail(self, waiting: Waiting, error: Exception) -> None:
        waiting.tell_late(error, 0, self._clock())


def _bytes_of(feeds: Tensors) -> int:
    """What is hashed, roughly: texts are objects, and short."""
    return sum(array.size * _TEXT_BYTES if array.dtype.kind == "O" else array.nbytes for array in feeds.values())
