"""Looks after a model in the tritonserver: whether it answers, and that it comes back when it does not.

A server that dies is started anew by the kubelet, without models. One thread looks after the model: it loads the model again,
runs it once, and lets callers in again. Until then `problem` says what is the matter.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from inference_protocol.reasons import WorkerReason
from inference_worker.engines.engine import EngineUnavailableError
from inference_worker.engines.triton.client import TritonGoneError, TritonRefusedError
from inference_worker.engines.triton.server import ServedModel
from inference_worker.errors import WorkerError

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""How often the server is asked whether the model is there."""

_PROBE_SHARE = 50.0
"""An idle model is run once in so many times what a run takes: at most that part of the device goes into looking after it."""

_PROBE_PATIENCE_SECONDS = 30.0
"""An idle model that does not answer for longer than this and many times what it took before is held by a run that does not end."""

_RELOAD_SHARE = 10.0
"""What was loaded once is loaded anew within so many times what that took, and within _AWAY_SECONDS: else it will not be."""

_AWAY_SECONDS = 60.0
"""How long a worker that serves waits for a server to come back, before it ends and another pod takes its place."""


class Supervisor:
    """Looks after one loaded model until it is closed. May be told and asked from several threads."""

    def __init__(
        self,
        model: ServedModel,
        run: Callable[[float], object],
        *,
        load_seconds: float,
        on_hopeless: Callable[[WorkerError], None],
    ) -> None:
        """`run` runs the model on anything, within so many seconds. `load_seconds` is what loading took the first time."""
        self._model = model
        self._run = run
        self._load_seconds = load_seconds
        self._on_hopeless = on_hopeless
        self._changed = threading.Condition()
        self._problem: str | None = None
        self._closed = False
        self._running = self._returns = 0
        self._answered_at = self._probe_seconds = 0.0

    def start(self) -> None:
        """Begin, in a thread of its own."""
        threading.Thread(target=self._look_after, name="triton", daemon=True).start()

    @property
    def problem(self) -> str | None:
        """Why the model can't be run just now, in words; None while it can."""
        return self._problem

    @property
    def returns(self) -> int:
        """How often the model has come back: a run that began before the last time tells nothing about the model as it is now."""
        return self._returns

    def lost(self, why: str, returns: int) -> EngineUnavailableError:
        """Take note that the model is lost, by a run that began after so many returns; returns what its callers are told."""
        with self._changed:
            if returns == self._returns:
                self._problem = why
                self._changed.notify_all()
        return EngineUnavailableError(why)

    def answered(self) -> None:
        """Take note that the model has answered."""
        self._answered_at = time.monotonic()

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """A caller's run, which tells as much as a probe would."""
        with self._changed:
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1

    def wait_for_return(self, seconds: float) -> None:
        """Wait until the model is back. Raises EngineUnavailableError when it is not within `seconds`."""
        with self._changed:
            back = self._changed.wait_for(lambda: self._problem is None or self._closed, seconds)
        if not back or self._closed:
            raise EngineUnavailableError(self._problem or "the model is being unloaded")

    def close(self) -> None:
        """Look after it no longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _look_after(self) -> None:
        away_since: float | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._problem is not None, LOOK_SECONDS)
                if self._closed:
                    return
            try:
                if self._problem is not None:
                    self._bring_back()
                else:
                    self._look()
                away_since = None
            except (TritonGoneError, TritonRefusedError, WorkerError, EngineUnavailableError) as error:
                self.lost(f"Triton is away, and is waited for: {error}", self._returns)
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > _AWAY_SECONDS:
                    # Retryable whatever it was: another pod has another server, and a repository of its own.
                    text = f"Triton stayed away for {_AWAY_SECONDS:g} s: {error}; see the log of its container"
                    self._on_hopeless(WorkerError(WorkerReason.BACKEND_UNREACHABLE, text))
                time.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        """See whether the model answers; while callers are answered, that is known. Raises when it does not."""
        self._model.require_ready()
        # Triton calls a model ready whose process has died, until the next request meets it. A caller's run that is under way tells
        # as much, and a probe would wait behind it.
        silent_seconds = time.monotonic() - self._answered_at
        if not self._running and silent_seconds > max(LOOK_SECONDS, _PROBE_SHARE * self._probe_seconds):
            self._probe()

    def _bring_back(self) -> None:
        """Load the model anew and run it once, before callers come. Raises while that does not succeed."""
        self._model.require_server()
        # Triton never answers some of the runs that were with a process which died: their threads would wait for good.
        self._model.abandon_runs()
        # A model of which only the process has died would be found unchanged, and left as it is.
        self._model.unload()
        self._model.load(max(_AWAY_SECONDS, _RELOAD_SHARE * self._load_seconds))
        self._probe()
        with self._changed:
            self._problem = None
            self._returns += 1
            self._changed.notify_all()
        log.info("Triton is back, and the model with it")

    def _probe(self) -> None:
        begun = time.monotonic()
        # A model that refuses zeros has answered all the same.
        with contextlib.suppress(ValueError, RuntimeError, MemoryError):
            self._run(_PROBE_PATIENCE_SECONDS + _PROBE_SHARE * self._probe_seconds)
        self.answered()
        self._probe_seconds = self._answered_at - begun
