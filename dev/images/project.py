"""The images of the project, named after what is in them."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dev.cache import cache_root, locked, published, tree_digest
from dev.console import say
from dev.images.base import Base, ensure_base
from dev.images.buildah import Buildah
from dev.pip_config import pip_mounts
from dev.venv import all_engines

CHECKOUT = Path(__file__).resolve().parents[2]
_PROTOCOL = "protocol/inference_protocol"
# How many archives of an image stay: enough to go back and forth between states of the code.
_KEPT = 3


USUAL = Base()
# Debian's PyTorch computes on CPUs and is small; that of PyPI brings CUDA along.
WITH_PYTORCH = Base(packages=("python3-torch",))
# For its Python there is numpy 1, and the models run in an interpreter that is embedded.
FOR_TRITON = Base("bookworm", ("libpython3.11",))


@dataclass(frozen=True, slots=True)
class Recipe:
    """What goes into one image: files and folders that it depends on, the Containerfile first; arguments of its build; its base."""

    key: str
    repository: str
    inputs: tuple[str, ...]
    arguments: Mapping[str, str] = field(default_factory=dict)
    base: Base = USUAL


def _of_package(key: str, repository: str, folder: str, package: str, base: Base = USUAL) -> Recipe:
    files = (f"{folder}/Containerfile", f"{folder}/requirements.txt")
    return Recipe(key, repository, (*files, f"{folder}/{package}", _PROTOCOL), base=base)


def recipes() -> tuple[Recipe, ...]:
    """What is built: the images of the other back ends only where all engines are asked for."""
    return (*RECIPES, *ENGINE_RECIPES) if all_engines() else RECIPES


RECIPES = (
    _of_package("operator", "localhost/inference-operator", "operator", "inference_operator"),
    _of_package("worker", "localhost/inference-worker", "worker-image", "inference_worker"),
)

ENGINE_RECIPES = (
    _of_package("torchscript", "localhost/inference-worker-torch", "worker-image", "inference_worker", WITH_PYTORCH),
    Recipe(
        "triton",
        "localhost/inference-triton",
        ("worker-image/Containerfile.triton", "worker-image/requirements-triton.txt"),
        # The local base is Debian with Debian's Python.
        {"PYTHON_HOME": "/usr"},
        FOR_TRITON,
    ),
)

# Several GB, for which no node here has a device: built when it is asked for by name, and brought nowhere.
GPU_RECIPE = Recipe(
    "gpu",
    "localhost/inference-worker-gpu",
    ("worker-image/Containerfile.gpu", "worker-image/requirements-gpu.txt", "worker-image/inference_worker", _PROTOCOL),
)


@dataclass(frozen=True, slots=True)
class Image:
    """A built image and the archive that holds it."""

    name: str
    archive: Path


def build(recipe: Recipe, buildah: Buildah) -> Image:
    """Return the image for the present state of the checkout, built when the cache has none."""
    base = ensure_base(buildah, recipe.base)
    with _snapshot(recipe) as context:
        paths = [context / name for name in recipe.inputs]
        tag = tree_digest(paths, base=context, extra=[base])
        image = Image(f"{recipe.repository}:{tag}", _folder(recipe, tag) / "image.tar")
        with locked(f"image-{recipe.key}"):
            if not image.archive.exists():
                _build(recipe, buildah, context, image, base=base)
                _forget_old(recipe, buildah)
    return image


def _build(recipe: Recipe, buildah: Buildah, context: Path, image: Image, *, base: str) -> None:
    say(f"building {image.name}")
    with pip_mounts() as mounts:
        buildah.build(
            image.name,
            context=context,
            containerfile=context / recipe.inputs[0],
            arguments={"BASE_IMAGE": base, **recipe.arguments},
            mounts=mounts,
        )
    with published(image.archive.parent) as scratch:
        buildah.save(image.name, scratch / image.archive.name)


@contextmanager
def _snapshot(recipe: Recipe) -> Iterator[Path]:
    """Copy the inputs, so that the name is that of what gets built even while somebody edits."""
    with tempfile.TemporaryDirectory(prefix="image-context-") as name:
        context = Path(name)
        for item in recipe.inputs:
            source, target = CHECKOUT / item, context / item
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".*"))
            else:
                shutil.copyfile(source, target)
        yield context


def _folder(recipe: Recipe, tag: str) -> Path:
    return cache_root() / "images" / f"{recipe.key}-{tag}"


def _forget_old(recipe: Recipe, buildah: Buildah) -> None:
    folders = sorted(_folder(recipe, "x").parent.glob(f"{recipe.key}-*"), key=_age)
    for folder in folders[_KEPT:]:
        buildah.remove(f"{recipe.repository}:{folder.name.removeprefix(f'{recipe.key}-')}")
        shutil.rmtree(folder, ignore_errors=True)


def _age(folder: Path) -> float:
    """Sort key that puts the newest first."""
    return -folder.stat().st_mtime
