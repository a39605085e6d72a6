"""`python -m dev.sbom [ARCHIVE ...]`: write the bill of materials of images, in CycloneDX, to build/sbom.

An archive is what `skopeo copy docker://IMAGE oci-archive:FILE` writes. Without any, both images of this checkout are taken, and
built when missing.
"""

import argparse
from pathlib import Path

from dev.cluster.lifecycle import require_root
from dev.console import run_main
from dev.images.buildah import Buildah
from dev.images.project import RECIPES, build
from dev.lint.version import ROOT, source_version
from dev.packages import IMAGE_PACKAGES, ensure_packages
from dev.sbom.document import document
from dev.sbom.image import read_image


def main() -> int:
    """Write the documents; print where they are."""
    parser = argparse.ArgumentParser(prog="python -m dev.sbom", description=__doc__)
    parser.add_argument("archives", nargs="*", type=Path, metavar="ARCHIVE")
    given = parser.parse_args()
    folder = ROOT / "build" / "sbom"
    folder.mkdir(parents=True, exist_ok=True)
    for archive in given.archives or _built():
        image = read_image(archive)
        name = image.short_name or archive.stem
        target = folder / f"{name}.cdx.json"
        target.write_text(document(image, source_version(ROOT)))
        print(target.relative_to(ROOT))
    return 0


def _built() -> list[Path]:
    require_root()
    ensure_packages(IMAGE_PACKAGES)
    buildah = Buildah()
    return [build(recipe, buildah).archive for recipe in RECIPES]


if __name__ == "__main__":
    run_main(main)
