"""`python -m examples.demo.install`: the operator of this checkout on the local cluster, without the examples."""

import sys

from examples.demo.cluster import build_images, install, local, say


def main() -> int:
    """Install or upgrade the operator; print the worker's image and where the cluster is."""
    kube = local()
    images = build_images()
    install(kube, images)
    print(f"the worker's image: {images['worker']}")
    print(f"export KUBECONFIG={kube.kubeconfig}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        say(f"failed: {error}")
        sys.exit(1)
