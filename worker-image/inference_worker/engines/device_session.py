"""An ONNX Runtime session on a device: all that it does, it does on one thread, and runs of known shapes from captures."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import onnxruntime as ort

from inference_worker.engines import onnx_faults
from inference_worker.engines.captured import CAPTURING, NO_GRAPH, Captures, options_of
from inference_worker.engines.engine import Tensor, Tensors

log = logging.getLogger(__name__)

Open = Callable[[Mapping[str, str]], ort.InferenceSession]
"""Opens the session with these further options of its first provider."""


class DeviceSession:
    """Stands in for an InferenceSession. `not_captured_because` says why its runs are not captured; empty while they may be."""

    def __init__(self, opening: Open) -> None:
        """Raises what `opening` raises."""
        self.not_captured_because = ""
        self._captures: Captures | None = None
        # For a session that breaks as it captures; gone with the first capture.
        self._again: Open | None = opening
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="device")
        try:
            self._session = self._thread.submit(self._opened, opening).result()
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    def _opened(self, opening: Open) -> ort.InferenceSession:
        try:
            session = opening(CAPTURING)
        except Exception as error:  # noqa: BLE001 -- whatever it is of, the session may do without; else it is raised again
            self.not_captured_because = onnx_faults.plain(error)
            return opening({})
        self._captures = Captures(session)
        return session

    def capture(self, feeds: Tensors) -> None:
        """Capture runs of these shapes, if that can be."""
        self._thread.submit(self._capture, feeds).result()

    def _capture(self, feeds: Tensors) -> None:
        captures = self._captures
        if captures is None:
            return
        try:
            captures.capture(feeds)
        except Exception as error:  # noqa: BLE001 -- whatever it is of, the session may do without
            if onnx_faults.no_memory(str(error)):
                # The size is too large for a capture, and perhaps for a run: the run will tell.
                return
            if len(captures) or self._again is None:
                log.warning("runs of this shape are not captured: %s", onnx_faults.plain(error))
                return
            self.not_captured_because = onnx_faults.plain(error)
            self._captures = None
            captures.close()
            self._session = self._again({})
        self._again = None

    def run(self, names: list[str], feeds: Tensors, options: ort.RunOptions | None = None) -> list[Tensor]:
        """As InferenceSession.run."""
        return self._thread.submit(self._run, names, feeds, options).result()

    def _run(self, names: list[str], feeds: Tensors, options: ort.RunOptions | None) -> list[Tensor]:
        if self._captures is not None:
            if (answers := self._captures.run(feeds, names)) is not None:
                return answers
            options = options_of(NO_GRAPH, options)
        return cast(list[Tensor], self._session.run(names, feeds, options))

    def run_with_ort_values(
        self, names: list[str], values: dict[str, ort.OrtValue], options: ort.RunOptions | None = None
    ) -> list[ort.OrtValue]:
        """As InferenceSession.run_with_ort_values."""
        chosen = options_of(NO_GRAPH, options) if self._captures is not None else options
        return cast(
            list[ort.OrtValue], self._thread.submit(lambda: self._session.run_with_ort_values(names, values, chosen)).result()
        )

    def __getattr__(self, name: str) -> Any:
        """What only tells of the model needs no thread."""
        return getattr(self._session, name)

    def close(self) -> None:
        """Free the session, on its own thread."""
        self._thread.submit(self._closed).result()
        self._thread.shutdown(wait=False)

    def _closed(self) -> None:
        if self._captures is not None:
            self._captures.close()
        self._captures = self._again = None
        del self._session
