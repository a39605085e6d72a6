"""What is mutated, and the tests that cover it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dev.mutants.mutate import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
_OPERATOR = "operator/inference_operator"
_SIMULATION = "tests/simulation"


@dataclass(frozen=True, slots=True)
class Package:
    """Sources, and their tests: the near ones run first, the far ones only over a mutant that the near ones have let pass."""

    name: str
    sources: tuple[str, ...]
    near: tuple[str, ...]
    far: tuple[str, ...]

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


def _of_operator(name: str, *modules: str, tests: tuple[str, ...] = ()) -> Package:
    sources = tuple(f"{_OPERATOR}/{name}/{module}.py" for module in modules) or (f"{_OPERATOR}/{name}",)
    near = (f"tests/unit/{name}", *tests, _SIMULATION)
    return Package(name, sources, near, tuple(f"tests/unit/{other}" for other in _TESTED if f"tests/unit/{other}" not in near))


_TESTED = ("api", "autoscaling", "controllers", "jobs", "metering", "scheduling", "shadow", "state", "warmpools", "workers")
PACKAGES = (
    _of_operator("scheduling"),
    _of_operator("jobs"),
    _of_operator("workers"),
    _of_operator("warmpools", "eligibility", "pool"),
    _of_operator("autoscaling", "recommender", "window", "hpa", tests=("tests/unit/jobs",)),
    _of_operator("metering", "energy", "usage"),
    _of_operator("state", "parse", "topology", "resources"),
    _of_operator("api"),
    Package(
        "batching",
        ("worker-image/inference_worker/batching",),
        ("tests/unit/worker/batching", "tests/unit/worker"),
        ("tests/process/reports/test_batcher_hooks.py",),
    ),
)
