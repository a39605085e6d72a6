"""The gateway's image: the public one is that of the Envoy project; this stand-in has the same binary on the local base."""

import shutil
import tempfile
from pathlib import Path

from dev.cache import cache_root, digest, locked, published
from dev.console import say
from dev.envoy import REQUIREMENTS, ensure_envoy
from dev.images.base import ensure_base
from dev.images.buildah import Buildah
from dev.images.project import USUAL, Image

_CONTAINERFILE = """ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY envoy /usr/local/bin/envoy
USER 65532:65532
"""


def build_gateway(buildah: Buildah) -> Image:
    """Return the image of the Envoy that the tests use, built when the cache has none."""
    base = ensure_base(buildah, USUAL)
    tag = digest([REQUIREMENTS.read_bytes(), _CONTAINERFILE.encode(), base.encode()])
    image = Image(f"localhost/inference-gateway:{tag}", cache_root() / "images" / f"gateway-{tag}" / "image.tar")
    with locked("image-gateway"):
        if not image.archive.exists():
            _build(buildah, image, base)
    return image


def _build(buildah: Buildah, image: Image, base: str) -> None:
    say(f"building {image.name}")
    with tempfile.TemporaryDirectory(prefix="image-context-") as name:
        context = Path(name)
        shutil.copyfile(ensure_envoy(), context / "envoy")
        (context / "envoy").chmod(0o755)
        (context / "Containerfile").write_text(_CONTAINERFILE)
        buildah.build(image.name, context=context, containerfile=context / "Containerfile", arguments={"BASE_IMAGE": base})
    with published(image.archive.parent) as scratch:
        buildah.save(image.name, scratch / image.archive.name)
