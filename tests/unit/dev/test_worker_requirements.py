"""The image has what the worker imports: a package that only the development environment has is missing there."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Installed by images of their own, or imported by name where they are there.
ELSEWHERE = {"torch", "triton_python_backend_utils", "pynvml"}
DISTRIBUTIONS = {
    "google": "protobuf",
    "jwt": "pyjwt",
    "prometheus_client": "prometheus-client",
    "ml_dtypes": "ml-dtypes",
    "opentelemetry": "opentelemetry-sdk",
}


def locked(name: str) -> dict[str, set[str]]:
    """Versions of each package; more than one where Python's decides."""
    found: dict[str, set[str]] = {}
    for package, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ ]+)", (ROOT / "worker-image" / name).read_text(), re.MULTILINE):
        found.setdefault(package, set()).add(version)
    return found


def test_the_image_for_gpus_has_the_same_packages_but_for_its_runtime() -> None:
    usual, gpu = locked("requirements.txt"), locked("requirements-gpu.txt")
    cuda = {package for package in gpu if package.startswith("nvidia-")}

    # Both runtimes write one package: whichever came last would win.
    assert usual.pop("onnxruntime") and gpu.pop("onnxruntime-gpu")
    assert {package: versions for package, versions in gpu.items() if package not in cuda} == usual
    assert {"nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-curand"} <= cuda


def test_every_package_that_the_worker_imports_is_in_its_requirements() -> None:
    imported = set()
    for path in (ROOT / "worker-image" / "inference_worker").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    own = {"inference_worker", "inference_protocol"}
    needed = {DISTRIBUTIONS.get(name, name) for name in imported - set(sys.stdlib_module_names) - own - ELSEWHERE}
    missing = needed - locked("requirements.txt").keys()

    assert missing == set()
