"""What an engine is opened with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from inference_protocol.messages import ModelSource, WorkerConfig
from inference_worker.errors import WorkerError


@dataclass(frozen=True, slots=True)
class Opening:
    """A verified file, its digest (`sha256:HEX`), where it came from, and what the worker was told.

    `beside` are further files that hold weights, verified with it, by the names that the model has for them.
    `on_hopeless` is for an engine whose problem does not end: the worker ends with the reason. Any thread may call it.
    """

    data: bytes
    digest: str
    source: ModelSource
    config: WorkerConfig
    threads: int
    on_hopeless: Callable[[WorkerError], None] = lambda _: None
    beside: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def steady(self) -> bool:
        """Whether all runs will have one shape, as those of a batch task have."""
        return self.config.task is not None

    @property
    def patient(self) -> bool:
        """Whether it is for batches, which rather wait for what computes than to fail."""
        return self.config.task is not None or bool(self.config.task_token_digest)
