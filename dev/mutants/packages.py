"""What is mutated, and the tests that cover it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dev.mutants.mutate import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
_OPERATOR = "operator/inference_operator"


@dataclass(frozen=True, slots=True)
class Package:
    """Sources, and the folders and files of the tests that may notice a fault in them."""

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]

    def modules(self, root: Path) -> Iterator[Path]:
        """The modules, sorted; an empty `__init__` has nothing to change."""
        for source in self.sources:
            path = root / source
            yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]

    def mutants(self, root: Path = ROOT) -> Iterator[tuple[Path, Mutant]]:
        """All mutants with the paths of their modules."""
        for path in self.modules(root):
            yield from ((path, one) for one in mutants(_module(path.relative_to(root)), path.read_text()))


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts[1:])


def _of_operator(name: str, *modules: str) -> Package:
    sources = tuple(f"{_OPERATOR}/{name}/{module}.py" for module in modules) or (f"{_OPERATOR}/{name}",)
    return Package(name, sources, _TESTS)


_TESTED = ("api", "autoscaling", "controllers", "jobs", "metering", "scheduling", "shadow", "state", "warmpools", "workers")
_TESTS = (*(f"tests/unit/{name}/" for name in _TESTED), "tests/simulation/")
PACKAGES = (
    _of_operator("scheduling"),
    _of_operator("jobs"),
    _of_operator("workers"),
    _of_operator("warmpools", "eligibility", "pool", "pool_state"),
    _of_operator("autoscaling", "recommender", "window", "hpa"),
    _of_operator("metering", "energy", "usage"),
    _of_operator("state", "parse", "topology", "resources"),
    _of_operator("api"),
    Package(
        "batching",
        ("worker-image/inference_worker/batching",),
        ("tests/unit/worker/", "tests/process/reports/test_batcher_hooks.py"),
    ),
    Package(
        "client",
        (
            "client/inference_client/job_state.py",
            "client/inference_client/steps.py",
            "client/kubectl_inference/pages",
            "client/kubectl_inference/redact.py",
            "client/kubectl_inference/snapshot.py",
        ),
        ("tests/unit/client/",),
    ),
)
