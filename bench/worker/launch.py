"""Command lines and settings of every side."""

import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.report import ROOT
from bench.worker.installs import HERE, environment
from bench.worker.processes import SERVER_CORE, Started, started
from bench.worker.sides import Plan, Side
from dev.console import DevError, say

PEERS_FOLDER = HERE / "peers"
# Another checkout's worker can stand in for this one's, to compare two states of it.
_SOURCE = Path(os.environ.get("BENCH_WORKER_SOURCE", ROOT))
_OFF = {"OMP_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}


@contextmanager
def start_ours(plan: Plan) -> Iterator[Started]:
    """The worker as the operator starts it, on loopback."""
    volume = plan.folder / "volumes" / "data"
    volume.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(plan.model.path, volume / "model.onnx")
    config = {
        "namespace": "bench",
        "job": "bench",
        "uid": "bench",
        "attempt": 1,
        "model": {"name": plan.model.name, "version": "1", "uri": "pvc://data/model.onnx"},
        "providers": ["CPUExecutionProvider"],
        "batchSize": plan.model.batch,
        **plan.extra,
    }
    variables = {
        "PYTHONPATH": os.pathsep.join(str(_SOURCE / part) for part in ("protocol", "worker-image")),
        "INFERENCE_VOLUME_ROOT": str(plan.folder / "volumes"),
        "INFERENCE_HTTP_PORT": str(plan.http_port),
        "INFERENCE_GRPC_PORT": str(plan.grpc_port),
        "INFERENCE_HEALTH_PORT": "0",
        "INFERENCE_TERMINATION_PATH": str(plan.folder / "report"),
        "INFERENCE_WORKER_CONFIG": json.dumps(config),
    }
    command = [sys.executable, "-m", "inference_worker"]
    log = plan.folder / "log"
    with started(command, log=log, core=SERVER_CORE, environment=variables, folder=plan.folder) as process:
        yield process


@contextmanager
def _start_python(plan: Plan, name: str, *arguments: str) -> Iterator[Started]:
    python = environment(PEERS_FOLDER / f"{name}.txt") / "bin" / "python"
    config = plan.folder / "peer.json"
    config.write_text(json.dumps(plan.document()))
    variables = {**_OFF, "BENCH_PEER_CONFIG": str(config), "PYTHONPATH": str(PEERS_FOLDER)}
    command = [str(python), *arguments]
    log = plan.folder / "log"
    with started(command, log=log, core=SERVER_CORE, environment=variables, folder=plan.folder) as process:
        yield process


@contextmanager
def start_kserve(plan: Plan) -> Iterator[Started]:
    """KServe's SDK, one uvicorn worker."""
    with _start_python(plan, "kserve", str(PEERS_FOLDER / "kserve_server.py")) as process:
        yield process


@contextmanager
def start_mosec(plan: Plan) -> Iterator[Started]:
    """Mosec with one worker process; its capacity is raised to what our own queue holds."""
    arguments = ("--port", str(plan.http_port), "--address", "127.0.0.1", "--capacity", "1024", "--log-level", "error")
    with _start_python(plan, "mosec", str(PEERS_FOLDER / "mosec_server.py"), *arguments) as process:
        yield process


@contextmanager
def start_litserve(plan: Plan) -> Iterator[Started]:
    """LitServe with one API server and one worker process."""
    with _start_python(plan, "litserve", str(PEERS_FOLDER / "litserve_server.py")) as process:
        yield process


@contextmanager
def start_mlserver(plan: Plan) -> Iterator[Started]:
    """MLServer in one process. Its batcher is off with a wait of 0, so that it gets a tenth of a millisecond."""
    batching = {"max_batch_size": plan.model.batch, "max_batch_time": 0.0001} if plan.model.batch > 1 else {}
    settings = {
        "host": "127.0.0.1",
        "http_port": plan.http_port,
        "grpc_port": plan.grpc_port,
        "metrics_port": plan.metrics_port,
        "parallel_workers": 0,
        "debug": False,
    }
    model = {"name": plan.model.name, "implementation": "mlserver_model.OnnxModel", **batching}
    repository = plan.folder / "repository"
    repository.mkdir(exist_ok=True)
    (repository / "settings.json").write_text(json.dumps(settings))
    (repository / "model-settings.json").write_text(json.dumps(model))
    with _start_python(plan, "mlserver", "-c", "from mlserver.cli import main; main()", "start", str(repository)) as process:
        yield process


@contextmanager
def start_triton(plan: Plan) -> Iterator[Started]:
    """The server inside the PyTriton wheel, driven directly, with its Python backend."""
    packages = next((environment(PEERS_FOLDER / "triton.txt") / "lib").glob("python3*/site-packages"))
    server = packages / "pytriton" / "tritonserver"
    backends = _backends(plan, server)
    repository = _repository(plan)
    config = plan.folder / "peer.json"
    config.write_text(json.dumps({**plan.document(), "sitePackages": str(packages), "peersFolder": str(PEERS_FOLDER)}))
    # The stub would otherwise load the system's libpython, whose library may be of another patch version than its files.
    libraries = [sysconfig.get_config_var("LIBDIR"), str(packages / "nvidia_pytriton.libs"), str(server / "external_libs")]
    prefix = f"bench_worker_{os.getpid()}_{plan.http_port}_"
    variables = {**_OFF, "LD_LIBRARY_PATH": os.pathsep.join(libraries), "BENCH_PEER_CONFIG": str(config)}
    variables["PYTHONHOME"] = sys.base_prefix
    command = [
        str(server / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        f"--http-port={plan.http_port}",
        f"--grpc-port={plan.grpc_port}",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--allow-metrics=true",
        f"--metrics-port={plan.metrics_port}",
        "--log-info=false",
        "--pinned-memory-pool-byte-size=0",
        f"--backend-config=python,shm-region-prefix-name={prefix}",
    ]
    log = plan.folder / "log"
    try:
        with started(command, log=log, core=SERVER_CORE, environment=variables, folder=plan.folder) as process:
            yield process
    finally:
        for region in Path("/dev/shm").glob(f"{prefix}*"):
            region.unlink(missing_ok=True)


def _backends(plan: Plan, server: Path) -> Path:
    folder = plan.folder / "backends"
    shutil.copytree(server / "backends", folder, dirs_exist_ok=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy2(server / "python_backend_stubs" / version / "triton_python_backend_stub", folder / "python")
    return folder


def _repository(plan: Plan) -> Path:
    folder = plan.folder / "repository" / plan.model.name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(PEERS_FOLDER / "triton_model.py", folder / "1" / "model.py")

    def tensors(kind: str, ports: tuple[tuple[str, str, tuple[int, ...]], ...]) -> str:
        each = (f'{{ name: "{name}" data_type: TYPE_{datatype} {_dims(shape)} }}' for name, datatype, shape in ports)
        return f"{kind} [ {', '.join(each)} ]\n"

    # A request may only shorten the default, and a default of none counts as shorter than any. Only where deadlines are
    # measured: with any default Triton lets requests wait beside an idle instance (triton-inference-server/server#8870).
    policy = "default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 60000000 allow_timeout_override: true }"
    queue = policy if plan.deadline_ms is not None else ""
    text = f'name: "{plan.model.name}"\nbackend: "python"\nmax_batch_size: {plan.model.batch}\n'
    text += tensors("input", plan.model.inputs) + tensors("output", plan.model.outputs)
    text += f"dynamic_batching {{ max_queue_delay_microseconds: 0 {queue} }}\ninstance_group [ {{ kind: KIND_CPU count: 1 }} ]\n"
    (folder / "config.pbtxt").write_text(text)
    return folder.parent


def _dims(shape: tuple[int, ...]) -> str:
    # One value a row is an empty shape, which config.pbtxt can only say by reshaping [1].
    return f"dims: [ {', '.join(map(str, shape))} ]" if shape else "dims: [ 1 ] reshape { shape: [ ] }"


@contextmanager
def _start_stub(plan: Plan) -> Iterator[Started]:
    command = [sys.executable, str(HERE / "stub.py"), str(plan.http_port)]
    with started(command, log=plan.folder / "log", core=SERVER_CORE, environment={}, folder=plan.folder) as process:
        yield process


_HTTP = frozenset({"json", "binary"})
_ALL = _HTTP | {"grpc"}
SIDES = (
    Side("ours", start_ours, _ALL, "/v2/health/ready", deadlines="header"),
    Side("triton", start_triton, _ALL, "/v2/health/ready", deadlines="parameter"),
    Side("mlserver", start_mlserver, frozenset({"json", "grpc"}), "/v2/models/{name}/ready"),
    Side("kserve", start_kserve, _ALL, "/v2/models/{name}/ready"),
    Side("mosec", start_mosec, _HTTP, "/", oip=False, path="/inference"),
    Side("litserve", start_litserve, frozenset({"json"}), "/health", oip=False, path="/predict"),
)

STUB = Side("stub", _start_stub, frozenset({"json"}), "/")


def prepare(sides: tuple[Side, ...], failed: dict[str, str]) -> None:
    """Build every environment beforehand; a peer that can't be installed is noted with the reason."""
    for side in sides:
        if side.name == "ours":
            continue
        try:
            environment(PEERS_FOLDER / f"{side.name}.txt")
        except DevError as error:
            say(f"  {side.name} can't be installed: {error}")
            failed[side.name] = f"installation: {error}"
