"""The image that holds a pod's namespaces: Debian's static catatonit and nothing else."""

import shutil
from pathlib import Path

from dev.cache import cache_root, digest, locked, published
from dev.console import DevError
from dev.images.archive import write_single_file_image


def pause_image() -> tuple[str, Path]:
    """Return the name of the pause image and the archive that holds it, made once."""
    found = shutil.which("catatonit")
    if found is None:
        raise DevError("catatonit is missing; run python3 -m dev.packages")
    program = Path(found)
    tag = digest([program.read_bytes(), b"1"])
    name = f"localhost/pause:{tag}"
    folder = cache_root() / "images" / f"pause-{tag}"
    archive = folder / "image.tar"
    with locked("image-pause"):
        if not archive.exists():
            with published(folder) as scratch:
                write_single_file_image(
                    scratch / "image.tar",
                    name=name,
                    program=program,
                    path="/pause",
                    # -P is catatonit's way to wait for ever and reap what is left behind.
                    entrypoint=["/pause", "-P"],
                )
    return name, archive
