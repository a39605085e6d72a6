"""An engine around another one: all but its runs is the other's."""

from inference_worker.engines.engine import Cancellation, DeviceRuns, Engine, Shapes, Stage, Tensor, Tensors, TensorSpec


class WrappedEngine:
    """See Engine. Whoever derives from it says what is different."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.inputs, self.outputs, self.rows = engine.inputs, engine.outputs, engine.rows
        self.provider, self.platform = engine.provider, engine.platform

    @property
    def device_runs(self) -> DeviceRuns | None:
        """See Engine."""
        return self._engine.device_runs

    @property
    def problem(self) -> str | None:
        """See Engine."""
        return self._engine.problem

    @property
    def memory_bytes(self) -> int:
        """See Engine."""
        return self._engine.memory_bytes

    def capture(self, feeds: Tensors) -> None:
        """See Engine."""
        self._engine.capture(feeds)

    def stage(self, shapes: Shapes, *, wait: bool = True) -> Stage | None:
        """See Engine."""
        return self._engine.stage(shapes, wait=wait)

    def mixes(self, inputs: tuple[TensorSpec, ...]) -> str:
        """See Engine."""
        return self._engine.mixes(inputs)

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        """See Engine."""
        return self._engine.run(feeds, wanted, cancellation)

    def close(self) -> None:
        """See Engine."""
        self._engine.close()
