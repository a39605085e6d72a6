"""`python3 -m dev.images`: build the images if the code changed, bring them to the nodes.

The last line on stdout is JSON: {"operator": NAME, "worker": NAME}; with INFERENCE_ENGINES=all "torchscript" and "triton", too.
"""

import argparse
import json

from dev.cluster.control_plane import processes_of
from dev.cluster.layout import NODES, default_layout
from dev.cluster.lifecycle import require_root
from dev.cluster.nodes import containerd_name, import_image
from dev.console import run_main, say
from dev.images.buildah import Buildah
from dev.images.project import Image, build, recipes
from dev.packages import CLUSTER_PACKAGES, IMAGE_PACKAGES, ensure_packages


def main() -> int:
    """Build, import, print the names."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.images", description=__doc__)
    parser.add_argument("--no-import", action="store_true", help="only build")
    arguments = parser.parse_args()
    require_root()
    ensure_packages((*CLUSTER_PACKAGES, *IMAGE_PACKAGES))
    buildah = Buildah()
    images = {recipe.key: build(recipe, buildah) for recipe in recipes()}
    if not arguments.no_import:
        for image in images.values():
            bring_to_nodes(image)
    print(json.dumps({key: image.name for key, image in images.items()}))
    return 0


def bring_to_nodes(image: Image) -> None:
    """Import an image into every node that runs."""
    layout = default_layout()
    processes = processes_of(layout)
    for node in NODES:
        if processes.running(containerd_name(node)):
            import_image(layout, node, name=image.name, archive=image.archive)
        else:
            say(f"{node.name} does not run: {image.name} stays in the cache")


if __name__ == "__main__":
    run_main(main)
