"""One model of the worker: how it is loaded, and what is kept of it while it answers."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from inference_protocol.messages import ModelFacts, ModelSource, Quantization, WorkerConfig
from inference_protocol.node_cache import GRANT_VARIABLE
from inference_protocol.reasons import WorkerReason
from inference_worker import cpu, device, fetch
from inference_worker.batching.batcher import Batcher
from inference_worker.batching.padding import Padding, next_size
from inference_worker.batching.queue import NEVER
from inference_worker.device import DeviceMemory
from inference_worker.engines import external_data
from inference_worker.engines.engine import Engine, EngineUnavailableError, on_cpu
from inference_worker.engines.opening import Opening
from inference_worker.engines.registry import open_engine
from inference_worker.errors import WorkerError
from inference_worker.metrics import ModelMetrics
from inference_worker.serve import grpc_codec
from inference_worker.serve.ask import Signature
from inference_worker.serve.codec import Decoder
from inference_worker.signing.verify import verified
from inference_worker.threads import in_thread
from inference_worker.warmup import Warm, fills_up, warm_up

log = logging.getLogger(__name__)

_ROWS_LIMIT_BYTES = 1 << 30
_WHY_LETTERS = 400


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is loaded, verified and warmed, not yet asked."""

    source: ModelSource
    engine: Engine
    warm: Warm
    facts: ModelFacts


class Model:
    """A model that answers. Made on the event loop that its requests come from."""

    def __init__(
        self, loaded: Loaded, config: WorkerConfig, metrics: ModelMetrics, *, on_hopeless: Callable[[WorkerError], None]
    ) -> None:
        warm = loaded.warm
        self.name = loaded.source.name
        self.version = loaded.source.version
        self.engine = loaded.engine
        self.warm = warm
        self.facts = loaded.facts
        self.signature = Signature(loaded.engine.inputs, loaded.engine.outputs)
        self.decoder = Decoder(self.signature)
        self.grpc_decoder = grpc_codec.Decoder(self.signature)
        self.metrics = metrics
        sizes = sorted(warm.profile.measured)
        self.max_rows = min(config.batch_size, sizes[-1]) if warm.overflow is not None and sizes else config.batch_size
        self.batcher = Batcher(
            loaded.engine,
            warm.layout,
            warm.profile,
            max_rows=self.max_rows,
            warm=warm.shape,
            inline=warm.inline,
            prepares=warm.prepares,
            threads=warm.threads,
            target_seconds=NEVER if config.latency_target_seconds is None else config.latency_target_seconds,
            pad=padding(loaded.engine, warm),
            on_hopeless=on_hopeless,
            counts=metrics.counts,
        )
        metrics.batcher = self.batcher

    @property
    def batches(self) -> bool:
        """Whether requests may share a run."""
        return self.warm.layout.joins and self.max_rows > 1

    async def retire(self) -> None:
        """Answer what is there, then free the model. New requests go elsewhere by now."""
        await self.batcher.emptied()
        self.batcher.close()
        # Not on the event loop: what has to be told to another process may take as long as that likes.
        await in_thread(self.engine.close, name="closing")


def padding(engine: Engine, warm: Warm) -> Callable[[int], int]:
    """How many rows a run gets of so many: on a device other than a CPU one that it was warmed for."""
    if on_cpu(engine) or not warm.layout.joins:
        return lambda rows: rows
    if fills_up(engine):
        return partial(next_size, sorted(warm.profile.measured))
    return Padding(warm.profile, warm.switch_seconds)


def load(
    config: WorkerConfig, source: ModelSource, *, root: Path, on_hopeless: Callable[[WorkerError], None] = lambda _: None
) -> Loaded:
    """Fetch, verify, load and warm a model. Raises WorkerError. `on_hopeless` as Opening has it."""
    begun = time.perf_counter()
    signed = verified(source, hosts=config.fetch_from, root=root)
    files = _files(config, source, root, signed.require if signed is not None else None)
    data, beside, digest, variant = files.data, files.beside, files.digest, None
    del files
    if source.quantization is not None:
        data, variant = _quantized(external_data.embedded(data, beside), digest, source.quantization, config, root)
        beside = {}
    cpus = cpu.usable_cpus()
    look = device.looker(config)
    before = look()
    engine = open_engine(Opening(data, variant or digest, source, config, threads=cpus, on_hopeless=on_hopeless, beside=beside))
    del data, beside
    loaded = time.perf_counter()
    warm = _warmed(engine, config.batch_size, cpus)
    after = look()
    seconds = (loaded - begun, time.perf_counter() - loaded)
    facts = _facts(config, engine, warm, (digest, variant), seconds, (before, after))
    signer = signed.signer if signed is not None else None
    return Loaded(
        source, engine, warm, msgspec.structs.replace(facts, signer=signer, not_cached_because=_not_cached(config, engine))
    )


def _files(config: WorkerConfig, source: ModelSource, root: Path, vouch: Callable[[str, str], None] | None) -> fetch.ModelFiles:
    """The model's files, verified: of the node's cache, where it has one and the operator has granted this model."""
    read = partial(
        fetch.read_model,
        source.uri,
        digest=source.digest,
        limit=config.model_limit_bytes,
        hosts=config.fetch_from,
        root=root,
        storage=source.storage,
        vouch=vouch,
    )
    # A token is for one digest: a task's other model has none.
    if not os.environ.get(GRANT_VARIABLE) or source.digest is None or source.digest != config.model.digest:
        return read()
    from inference_worker.node_cache import client

    if (grant := client.grant()) is None:
        return read()
    limit = config.model_limit_bytes
    return client.read_model(grant, config.namespace, source.uri, source.digest, limit=limit, vouch=vouch, fetched=read)


def _not_cached(config: WorkerConfig, engine: Engine) -> str:
    if config.cache is None:
        return ""
    from inference_worker.cache.steady import why_not

    why = why_not(engine)[:_WHY_LETTERS]
    if why:
        log.warning("the job's cache is not used: %s", why)
    return why


def _warmed(engine: Engine, batch_size: int, cpus: int) -> Warm:
    try:
        return warm_up(engine, batch_size, cpus=cpus)
    except BaseException as error:
        # At once: the next model may need the memory before the collector comes.
        engine.close()
        if isinstance(error, EngineUnavailableError):
            raise WorkerError(WorkerReason.BACKEND_UNREACHABLE, f"while the model was warmed up: {error}") from error
        raise


def _facts(
    config: WorkerConfig,
    engine: Engine,
    warm: Warm,
    digests: tuple[str, str | None],
    seconds: tuple[float, float],
    memory: tuple[DeviceMemory | None, DeviceMemory | None],
) -> ModelFacts:
    """What is told of a model: digests of file and variant, seconds of load and warm-up, the device's memory before and after."""
    before, after = memory
    taken = device_taken(before, after, config.device_memory_bytes)
    runs = engine.device_runs
    return ModelFacts(
        digest=digests[0],
        provider=engine.provider,
        load_seconds=seconds[0],
        warmup_seconds=seconds[1],
        batch_size=engine.rows or config.batch_size,
        memory_bytes=engine.memory_bytes,
        items_per_second=warm.items_per_second,
        variant=digests[1],
        backend=config.backend,
        device_bytes=taken,
        device_free_bytes=left_of_device(after.free, taken, config.device_memory_bytes) if after is not None else 0,
        not_batched_because=warm.layout.why[:_WHY_LETTERS],
        device_runs=runs.mode.value if runs is not None else "",
        not_captured_because=runs.because[:_WHY_LETTERS] if runs is not None else "",
    )


def device_taken(before: DeviceMemory | None, after: DeviceMemory | None, limit: int | None) -> int:
    """Bytes of a device that a model took: what is less free than before, and no more than its share.

    Workers that share a device take theirs meanwhile, and no driver says whose is what within a pod.
    """
    if before is None or after is None:
        return 0
    taken = max(0, before.free - after.free)
    return taken if limit is None else min(taken, limit)


def left_of_device(free: int, taken: int, limit: int | None) -> int:
    """Bytes of a device that are left to other models of this worker: what is free, and no more than its share."""
    return free if limit is None else max(0, min(free, limit - taken))


def _quantized(data: bytes, digest: str, wanted: Quantization, config: WorkerConfig, root: Path) -> tuple[bytes, str]:
    """The INT8 variant of a verified model and its digest. Raises WorkerError when it is not accurate enough."""
    # Only who asks for a variant pays for the import.
    from inference_worker.quantize import Bounds, decode, variant_for
    from inference_worker.quantize.rows import decode_labels

    def read(uri: str) -> bytes:
        missing, hosts = WorkerReason.INPUT_NOT_FOUND, config.fetch_from
        return fetch.read_verified(uri, digest=None, limit=_ROWS_LIMIT_BYTES, missing=missing, hosts=hosts, root=root)[0]

    calibration = wanted.calibration_uri
    made = variant_for(
        data,
        digest,
        method=wanted.method,
        calibration=decode(read(calibration), calibration) if calibration is not None else None,
        evaluation=decode(read(wanted.evaluation_uri), wanted.evaluation_uri),
        labels=decode_labels(read(wanted.labels_uri), wanted.labels_uri) if wanted.labels_uri is not None else None,
        bounds=Bounds(wanted.max_drop, wanted.min_agreement, config.batch_size),
        cache=None,
    )
    return made.data, made.digest
