"""`python3 -m dev.images`: build the images if the code changed, bring them to the nodes.

The last line on stdout is JSON: {"operator": NAME, "worker": NAME}; with INFERENCE_ENGINES=all "torchscript" and "triton", too.
`--gpu` builds the image for NVIDIA GPUs instead (8 GB of disk while it builds), and leaves it in the cache: {"gpu": NAME}.
`--gateway` builds that of the gateway's Envoy instead: {"gateway": NAME}.
"""

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from dev.cluster.control_plane import processes_of
from dev.cluster.layout import NODES, Node, default_layout
from dev.cluster.lifecycle import require_root
from dev.cluster.nodes import containerd_name, import_image
from dev.console import run_main, say
from dev.images.buildah import Buildah
from dev.images.gateway import build_gateway
from dev.images.project import GPU_RECIPE, Image, build, recipes
from dev.packages import CLUSTER_PACKAGES, IMAGE_PACKAGES, ensure_packages


def main() -> int:
    """Build, import, print the names."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.images", description=__doc__)
    parser.add_argument("--no-import", action="store_true", help="only build")
    parser.add_argument("--gpu", action="store_true", help="only build the worker's image for NVIDIA GPUs")
    parser.add_argument("--gateway", action="store_true", help="only the image of the gateway's Envoy")
    arguments = parser.parse_args()
    require_root()
    ensure_packages((*CLUSTER_PACKAGES, *IMAGE_PACKAGES))
    buildah = Buildah()
    if arguments.gateway:
        images = {"gateway": build_gateway(buildah)}
    else:
        images = {recipe.key: build(recipe, buildah) for recipe in ((GPU_RECIPE,) if arguments.gpu else recipes())}
    if not (arguments.no_import or arguments.gpu):
        bring_to_nodes(tuple(images.values()))
    print(json.dumps({key: image.name for key, image in images.items()}))
    return 0


def bring_to_nodes(images: Sequence[Image]) -> None:
    """Import images into every node that runs, all nodes at the same time."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(_bring_to_node, images), NODES))


def _bring_to_node(images: Sequence[Image], node: Node) -> None:
    layout = default_layout()
    if not processes_of(layout).running(containerd_name(node)):
        say(f"{node.name} does not run: {', '.join(image.name for image in images)} stay in the cache")
        return
    for image in images:
        import_image(layout, node, name=image.name, archive=image.archive)


if __name__ == "__main__":
    run_main(main)
