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
    "prometheus_client": "prometheus-client",
    "ml_dtypes": "ml-dtypes",
    "opentelemetry": "opentelemetry-sdk",
}


def test_every_package_that_the_worker_imports_is_in_its_requirements() -> None:
    locked = set(re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "worker-image" / "requirements.txt").read_text(), re.MULTILINE))
    imported = set()
    for path in (ROOT / "worker-image" / "inference_worker").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    own = {"inference_worker", "inference_protocol"}
    missing = {DISTRIBUTIONS.get(name, name) for name in imported - set(sys.stdlib_module_names) - own - ELSEWHERE} - locked

    assert missing == set()
