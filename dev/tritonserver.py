"""The tritonserver of the nvidia-pytriton wheel on this machine, without PyTriton: an environment of its own, and its command line.

Three traps of that binary are dealt with here: the Python back end's stub has to lie beside its library and be of this Python's
version; the stub loads whatever libpython the loader finds first; and PYTHONPATH is not honoured by it.
"""

import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from dev.cache import cache_root, digest, locked
from dev.console import DevError, heartbeat, say
from dev.venv import install

# The last Python that has numpy 1, which the stub wants.
NEWEST_PYTHON = (3, 12)
REQUIREMENTS = Path(__file__).parents[1] / "worker-image" / "requirements-triton.txt"


# As workers/triton.py has it.
_LIKE_THE_OPERATORS = (
    "--model-control-mode=explicit",
    "--http-address=127.0.0.1",
    "--allow-grpc=false",
    "--allow-metrics=false",
    "--exit-on-error=false",
    "--log-info=false",
)


@dataclass(frozen=True, slots=True)
class Tritonserver:
    """Where the server and what its models import are."""

    packages: Path
    backends: Path

    def command(self, repository: Path, port: int, *, shared_memory_prefix: str) -> list[str]:
        """Start it over `repository`, its models under the control of who calls, on loopback."""
        return [
            str(self.packages / "pytriton" / "tritonserver" / "bin" / "tritonserver"),
            f"--model-repository={repository}",
            f"--http-port={port}",
            *_LIKE_THE_OPERATORS,
            f"--backend-directory={self.backends}",
            f"--backend-config=python,shm-region-prefix-name={shared_memory_prefix}",
        ]

    @property
    def environment(self) -> dict[str, str]:
        """What has to be set for it, over this process's environment."""
        libraries = (sysconfig.get_config_var("LIBDIR"), str(self.packages / "nvidia_pytriton.libs"))
        return {
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(libraries),
            "PYTHONHOME": sys.base_prefix,
            "INFERENCE_PYTHON_PATH": str(self.packages),
        }


def ensure_tritonserver() -> Tritonserver:
    """The server, installed when missing. Raises DevError where this Python is too new for it."""
    if sys.version_info[:2] > NEWEST_PYTHON:
        newest = ".".join(map(str, NEWEST_PYTHON))
        raise DevError(f"tritonserver's models run on Python {newest} or older, this is {sys.version.split()[0]}")
    folder = cache_root() / "tritonserver" / digest([REQUIREMENTS.read_bytes(), sys.version.encode()])
    packages, backends = folder / "packages", folder / "backends"
    with locked("tritonserver"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            say("fetching tritonserver")
            with heartbeat("fetching tritonserver"):
                install(REQUIREMENTS, packages)
            server = packages / "pytriton" / "tritonserver"
            shutil.copytree(server / "backends", backends)
            version = f"{sys.version_info.major}.{sys.version_info.minor}"
            shutil.copy2(server / "python_backend_stubs" / version / "triton_python_backend_stub", backends / "python")
            (folder / "complete").touch()
    return Tritonserver(packages, backends)
