"""What the worker knows of itself: its phase, its models, its task or tasks."""

import asyncio
import contextlib
from pathlib import Path

from inference_protocol.messages import (
    PROBLEM_LENGTH,
    DeviceReading,
    ModelFacts,
    ModelSource,
    TaskOrder,
    Telemetry,
    WorkerConfig,
    cut,
)
from inference_protocol.reasons import WorkerReason
from inference_protocol.sketch import merged
from inference_worker import cpu
from inference_worker.batch.running import facts_of
from inference_worker.batch.task import Task
from inference_worker.colocated import ColocatedModels, FreeMemory
from inference_worker.device_meter import meter_for
from inference_worker.device_metrics import DeviceCollector
from inference_worker.engines.engine import Engine, on_cpu
from inference_worker.errors import WorkerError
from inference_worker.metrics import REGISTRY, ModelCollector, ModelMetrics
from inference_worker.model import Loaded, Model, load
from inference_worker.phase import PhaseMachine, WorkerPhase
from inference_worker.repository import Repository
from inference_worker.signing.verify import is_covered
from inference_worker.tasks import Begun, Tasks, config_of
from inference_worker.threads import in_thread
from inference_worker.tracing import Tracer
from inference_worker.warmup import Warm


class WorkerState:
    """Read by the routes, written by the main program.

    `failed` is set when the worker enters that phase, `first_loaded` when it leaves that of loading.
    """

    def __init__(self, config: WorkerConfig, *, root: Path) -> None:
        self.config = config
        self.root = root
        self.metrics = {source.name: self._metrics(source) for source in (config.model,)}
        self.repository = Repository((config.model,), self._load, self._start)
        self.task: Task | None = None
        # Set in a warm worker, which is handed tasks while it runs.
        self.tasks: Tasks | None = None
        self.colocated: ColocatedModels | None = None
        # From the start on: what loading draws counts, too.
        self._device = meter_for(config)
        self.failed = asyncio.Event()
        self.first_loaded = asyncio.Event()
        # False while callers' ports wait for a certificate: nobody could speak with them.
        self._certified = True
        self._machine = PhaseMachine()
        self._fault: WorkerError | None = None
        self._collectors = (ModelCollector(self.metrics.values()), DeviceCollector(lambda: self.device))
        for collector in self._collectors:
            REGISTRY.register(collector)

    @property
    def model(self) -> Model | None:
        """The model that this worker was started for."""
        return self.repository.get(self.config.model.name)

    @property
    def phase(self) -> WorkerPhase:
        """The phase now. A loaded model is looked at each time: neither an engine that goes away nor a run that hangs tells."""
        if self._machine.phase in (WorkerPhase.READY, WorkerPhase.UNAVAILABLE):
            self._machine.enter(WorkerPhase.READY if self._answers else WorkerPhase.UNAVAILABLE)
        return self._machine.phase

    @property
    def ready(self) -> bool:
        """Whether callers should come."""
        return self.phase is WorkerPhase.READY and self._certified

    def set_certified(self, certified: bool) -> None:  # noqa: FBT001 -- its one argument is what the name asks
        """Whether callers' ports have all that they show and ask for."""
        self._certified = certified

    @property
    def loaded(self) -> bool:
        """Whether the first load has ended well; the model may have been unloaded since."""
        return self._machine.phase is not WorkerPhase.LOADING

    @property
    def draining(self) -> bool:
        """Whether the worker was told to stop."""
        return self._machine.phase is WorkerPhase.DRAINING

    @property
    def fault(self) -> WorkerError | None:
        """Why the worker has failed; None unless it has."""
        return self._fault if self._machine.phase is WorkerPhase.FAILED else None

    @property
    def asked(self) -> int:
        """Requests that came since the start: answered, running or waiting."""
        return sum(each.asked for each in self.metrics.values())

    def answered_within(self, share: float) -> float | None:
        """Seconds within which this share of all requests was answered; None where none was."""
        return merged(each.sketch for each in self.metrics.values()).quantile(share)

    def drain(self) -> None:
        """Enter the phase from which a worker that was told to stop does not return."""
        self._machine.enter(WorkerPhase.DRAINING)

    @property
    def _answers(self) -> bool:
        model = self.model
        return model is not None and model.engine.problem is None and (model.batcher.stuck or self._hung_task) is None

    @property
    def stuck(self) -> str | None:
        """Why this worker will not answer any more, in words; None while all is well."""
        entries = self.repository.entries.values()
        return next((why for e in entries if e.model is not None and (why := e.model.batcher.stuck)), self._hung_task)

    @property
    def _hung_task(self) -> str | None:
        """That a run of a batch hangs, in words."""
        running = self.task or self.tasks
        return running.hung if running is not None else None

    def telemetry(self) -> Telemetry:
        """What the operator asks for."""
        model, task = self.model, self.task
        metrics = self.metrics[self.config.model.name]
        problem = model.engine.problem if model is not None else None
        return Telemetry(
            ready=self.ready,
            draining=self.draining,
            model=self.facts,
            progress=task.progress if task is not None else None,
            sketch=dict((task.sketch if task is not None else metrics.sketch).counts),
            in_flight=model.batcher.in_flight if model is not None else 0,
            queued=model.batcher.waiting if model is not None else 0,
            requests_total=metrics.requests,
            failed_total=metrics.failed,
            busy_seconds=metrics.batcher.busy_seconds if metrics.batcher is not None else 0.0,
            row_seconds=model.batcher.row_seconds if model is not None else None,
            tasks=self.tasks.open if self.tasks is not None else (),
            idle_seconds=self.tasks.idle_seconds if self.tasks is not None else None,
            colocated=self.colocated.digests if self.colocated is not None else (),
            problem=cut(problem, PROBLEM_LENGTH) if problem is not None else None,
            device=self.device,
        )

    @property
    def device(self) -> DeviceReading | None:
        """What the meters of the device said last; None where this worker has none."""
        return self._device.newest if self._device is not None else None

    @property
    def facts(self) -> ModelFacts | None:
        """What was measured of the model, with the task's throughput once there is one."""
        model, task = self.model, self.task
        if model is None or task is None:
            return model.facts if model is not None else None
        return facts_of(task, model.facts)

    def take_tasks(self, tracer: Tracer) -> Tasks:
        """Become a warm worker."""
        model = self.model
        assert model is not None, "its own model is loaded first"
        if self.config.backend == "onnx":
            # Only there do models share the memory that this process may use.
            room = FreeMemory(cpu.usable_memory_bytes() - model.facts.memory_bytes, model.facts.device_free_bytes)
            self.colocated = ColocatedModels(self._load_colocated, room, on_device=not on_cpu(model.engine))
        self.tasks = Tasks(self._begin, tracer.attempt)
        return self.tasks

    async def _begin(self, order: TaskOrder) -> Begun:
        engine, warm, facts = await self._model_for(order)
        task = Task(
            config_of(self.config, order),
            order.task,
            engine,
            warm,
            digest=facts.digest,
            root=self.root,
            counted_for=self.config.job,
            # Callers of this worker's own model come first, whichever model the task is of: they share a device.
            slack=self.model.batcher.slack if self.model is not None else None,
        )
        return Begun(task, facts)

    async def _model_for(self, order: TaskOrder) -> tuple[Engine, Warm, ModelFacts]:
        """What runs an order: this worker's own model, or a co-located model. Raises WorkerError."""
        held, asked = self.config.model, order.model
        if _is_same(asked, held):
            model = self.model
            if model is None:
                raise WorkerError(WorkerReason.MODEL_NOT_FOUND, f"{held.name} {held.version} was unloaded")
            return model.engine, model.warm, model.facts
        if self.colocated is None:
            why = f"and what others take in memory beside it is not known on back end {self.config.backend}"
            raise WorkerError(WorkerReason.OUT_OF_MEMORY, f"{asked.name} {asked.version} is not this worker's model, {why}")
        colocated = await self.colocated.take(order)
        return colocated.engine, colocated.warm, colocated.facts

    async def _load_colocated(self, order: TaskOrder) -> Loaded:
        config = config_of(self.config, order)
        return await in_thread(lambda: load(config, order.model, root=self.root), name="loading")

    def close(self) -> None:
        """Let go of what is shared with the process: its registry of metrics."""
        if self.colocated is not None:
            self.colocated.close()
        if self._device is not None:
            self._device.close()
        for collector in self._collectors:
            REGISTRY.unregister(collector)

    def _metrics(self, source: ModelSource) -> ModelMetrics:
        return ModelMetrics((self.config.namespace, self.config.job, source.name, source.version), ready=lambda: self.ready)

    async def _load(self, source: ModelSource) -> Loaded:
        loop = asyncio.get_running_loop()

        def on_hopeless(error: WorkerError) -> None:
            # The worker may be at its end already.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._give_up, error)

        return await in_thread(lambda: load(self.config, source, root=self.root, on_hopeless=on_hopeless), name="loading")

    def _start(self, loaded: Loaded) -> Model:
        model = Model(loaded, self.config, self.metrics[loaded.source.name], on_hopeless=self._give_up)
        if self._machine.phase is WorkerPhase.LOADING:
            self._machine.enter(WorkerPhase.READY)
            self.first_loaded.set()
            self._fail_if_hopeless()
        return model

    def _give_up(self, error: WorkerError) -> None:
        """Take note that the worker can't go on; the first reason counts."""
        self._fault = self._fault or error
        self._fail_if_hopeless()

    def _fail_if_hopeless(self) -> None:
        """Fail, unless the worker ends in another way: with its first load, with what its one task meets, or told to stop."""
        lasting = self._machine.phase in (WorkerPhase.READY, WorkerPhase.UNAVAILABLE) and self.config.task is None
        if self._fault is not None and lasting:
            self._machine.enter(WorkerPhase.FAILED)
            self.failed.set()


def _is_same(ordered: ModelSource, loaded: ModelSource) -> bool:
    """Whether the loaded file is the ordered one: by place, by digest where both name one, and by who signed it as what."""
    same_place = (ordered.uri, ordered.format, ordered.quantization) == (loaded.uri, loaded.format, loaded.quantization)
    same_digest = ordered.digest is None or loaded.digest is None or ordered.digest == loaded.digest
    return same_place and same_digest and is_covered(ordered, loaded)
