"""A model in the tritonserver, over its HTTP interface: waited for, loaded, asked, unloaded."""

import contextlib
import time

import msgspec

from inference_protocol.reasons import WorkerReason
from inference_worker.engines.engine import Cancellation
from inference_worker.engines.triton.client import TritonClient, TritonGoneError, TritonRefusedError, TritonSlowError
from inference_worker.errors import WorkerError

_ANSWER_SECONDS = 5.0
"""A server that takes longer to say that it is ready is as good as gone."""

_START_LOOK_SECONDS = 0.02
_UNLOAD_SECONDS = 10.0
_POLL_MARK = "failed to poll"


class _Metadata(msgspec.Struct, frozen=True):
    version: str = "?"


class ServedModel:
    """One model by its name in the server's repository. May be used from several threads."""

    def __init__(self, port: int, name: str) -> None:
        self._client = TritonClient(port)
        self._name = name

    def wait_for_server(self, seconds: float) -> str:
        """The server's version, once it is there. Raises WorkerError when it is not within `seconds`."""
        give_up = time.monotonic() + seconds
        while True:
            try:
                version = msgspec.json.decode(self._client.get("/v2", timeout=_ANSWER_SECONDS), type=_Metadata).version
                self.require_server()
                return version
            except (TritonGoneError, TritonRefusedError) as error:
                if time.monotonic() > give_up:
                    raise WorkerError(
                        WorkerReason.BACKEND_UNREACHABLE,
                        f"Triton was not ready after {seconds:g} s: {error}; see the log of its container",
                    ) from error
            time.sleep(_START_LOOK_SECONDS)

    def require_server(self) -> None:
        """Raise TritonGoneError or TritonRefusedError unless the server is there."""
        # Not /ready: one model that was refused makes the whole server not ready.
        self._client.get("/v2/health/live", timeout=_ANSWER_SECONDS)

    def require_ready(self) -> None:
        """Raise TritonGoneError or TritonRefusedError unless the server calls the model ready."""
        self._client.get(f"/v2/models/{self._name}/ready", timeout=_ANSWER_SECONDS)

    def load(self, seconds: float) -> None:
        """Have the model loaded. Raises WorkerError when it is not within `seconds`, or never will be."""
        try:
            self._client.post(f"/v2/repository/models/{self._name}/load", timeout=seconds)
        except TritonSlowError as error:
            raise WorkerError(
                WorkerReason.BACKEND_UNREACHABLE,
                f"Triton has not loaded the model within {seconds:g} s; see the log of its container",
            ) from error
        except TritonGoneError as error:
            raise WorkerError(
                WorkerReason.BACKEND_UNREACHABLE, f"Triton went away while it loaded the model: {error}; was its memory short?"
            ) from error
        except TritonRefusedError as error:
            # That is all that it says of them over HTTP.
            hint = (
                "; it can't read its config.pbtxt or its folder, the log of its container says why"
                if _POLL_MARK in str(error)
                else ""
            )
            raise WorkerError(WorkerReason.MODEL_REFUSED, f"Triton refuses the model: {error}{hint}") from error

    def unload(self) -> None:
        """Have the model unloaded; one that is not loaded stays so. Raises TritonGoneError."""
        with contextlib.suppress(TritonRefusedError):
            self._client.post(f"/v2/repository/models/{self._name}/unload", timeout=_UNLOAD_SECONDS)

    def infer(self, body: bytes, head: int, cancellation: Cancellation | None, timeout: float | None) -> tuple[bytes, int]:
        """The body of an answer and how much of it is JSON, as `head` is of the request's.

        Raises TritonGoneError, TritonRefusedError, RunCancelledError.
        """
        return self._client.run(f"/v2/models/{self._name}/infer", body, head, cancellation, timeout)

    def abandon_runs(self) -> None:
        """End the runs that are under way; whoever waits for them gets TritonGoneError."""
        self._client.abandon_runs()

    def forget(self) -> None:
        """Unload the model and let go of the server; one that is gone has forgotten the model already."""
        with contextlib.suppress(TritonGoneError):
            self.unload()
        self._client.close()
