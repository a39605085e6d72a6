"""An ONNX Runtime session on a device: all that it computes, it computes on one thread, in the quickest way that the model allows.

Runs of known shapes are replayed from captures. A model that can't be captured gets a session for each shape, which spares it the
change of shapes just as well, for more of the device's memory.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import onnxruntime as ort

from inference_worker.engines import onnx_faults
from inference_worker.engines.captured import CAPTURING, NO_GRAPH, Captures, options_of
from inference_worker.engines.engine import DeviceRuns, RunMode, Shapes, Stage, Tensor, Tensors, shapes_of
from inference_worker.engines.staging import Staging
from inference_worker.engines.transport import CudaTransport, Transport

log = logging.getLogger(__name__)

Open = Callable[[Mapping[str, str]], ort.InferenceSession]
"""Opens the session with these further options of its first provider."""


class DeviceSession:
    """Stands in for an InferenceSession."""

    def __init__(
        self, opening: Open, *, room: Callable[[], bool] = lambda: False, transports: Callable[[], Transport] = CudaTransport
    ) -> None:
        """`room` says whether the device has memory for one more session. Raises what `opening` raises."""
        self._room = room
        self._transports = transports
        self._captures: Captures | None = None
        self._staging: Staging | None = None
        self._because = ""
        self._by_shapes: dict[Shapes, ort.InferenceSession] = {}
        # For a session that breaks as it captures, and for those that each shape gets; gone once neither can be.
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
            session = opening({})
            self._because = onnx_faults.plain(error)
            return session
        self._captures = Captures(session)
        return session

    @property
    def runs(self) -> DeviceRuns:
        """How runs of the shapes that were captured are computed, and why not from captures."""
        if self._captures is not None:
            return DeviceRuns(RunMode.CAPTURED)
        return DeviceRuns(RunMode.SESSION_PER_SIZE if len(self._by_shapes) > 1 else RunMode.ONE_SESSION, self._because)

    def capture(self, feeds: Tensors) -> None:
        """Make runs of these shapes as quick as can be."""
        self._thread.submit(self._capture, feeds).result()

    def _capture(self, feeds: Tensors) -> None:
        if self._captures is not None:
            self._captured(self._captures, feeds)
        if self._captures is None:
            self._keep(shapes_of(feeds), feeds)

    def _captured(self, captures: Captures, feeds: Tensors) -> None:
        try:
            captures.capture(feeds)
        except Exception as error:  # noqa: BLE001 -- whatever it is of, the session may do without
            if onnx_faults.no_memory(str(error)):
                # The size is too large for a capture, and perhaps for a run: the run will tell.
                return
            if len(captures) or self._again is None:
                log.warning("runs of this shape are not captured: %s", onnx_faults.plain(error))
                return
            self._because = onnx_faults.plain(error)
            self._captures = None
            captures.close()
            self._session = self._again({})
        else:
            self._again = None

    def _keep(self, shapes: Shapes, feeds: Tensors) -> None:
        """Give these shapes a session of their own; the first ones have the one that there is."""
        if shapes in self._by_shapes or self._again is None:
            return
        if not self._by_shapes:
            self._by_shapes[shapes] = self._session
            return
        if not self._room():
            self._again = None
            return
        try:
            session = self._again({})
            session.run(None, feeds)
        except Exception as error:  # noqa: BLE001 -- whatever it is of, the session that there is may do
            log.warning("runs of this shape get no session of their own: %s", onnx_faults.plain(error))
            self._again = None
            return
        self._by_shapes[shapes] = session

    def stage(self, shapes: Shapes, *, wait: bool = True) -> Stage | None:
        """Buffers for a run of these shapes, as Engine.stage has it; None too where there is no room for them."""
        capture = self._captures.of(shapes) if self._captures is not None else None
        if capture is None or not capture.stages:
            return None
        try:
            if self._staging is None:
                self._staging = Staging(self._transports)
            return self._staging.stage(capture, self._thread.submit, wait=wait)
        except (MemoryError, OSError, RuntimeError) as error:
            log.warning("runs are copied one after another: %s", error)
            capture.stages = False
            return None

    def run(self, names: list[str], feeds: Tensors, options: ort.RunOptions | None = None) -> list[Tensor]:
        """As InferenceSession.run."""
        return self._thread.submit(self._run, names, feeds, options).result()

    def _run(self, names: list[str], feeds: Tensors, options: ort.RunOptions | None) -> list[Tensor]:
        shapes = shapes_of(feeds)
        if self._captures is None:
            return cast(list[Tensor], self._by_shapes.get(shapes, self._session).run(names, feeds, options))
        if (capture := self._captures.of(shapes)) is not None:
            return capture.run(feeds, names)
        return cast(list[Tensor], self._session.run(names, feeds, options_of(NO_GRAPH, options)))

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
        if self._staging is not None:
            self._staging.close()
        if self._captures is not None:
            self._captures.close()
        self._by_shapes.clear()
        self._captures = self._staging = self._again = None
        del self._session
