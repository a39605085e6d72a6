"""`python3 -m dev.packages`: install the Debian packages that cluster and images need, once."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.cache import locked
from dev.console import DevError, heartbeat, run_main, say

CLUSTER_PACKAGES = (
    "catatonit",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "iproute2",
    "iptables",
    "openssl",
    "runc",
)
IMAGE_PACKAGES = ("buildah", "mmdebstrap")
_POLICY = Path("/usr/sbin/policy-rc.d")


def ensure_packages(names: tuple[str, ...] = CLUSTER_PACKAGES) -> None:
    """Install what is missing; needs root and apt only then."""
    missing = [name for name in names if not _is_installed(name)]
    if not missing:
        return
    if os.geteuid() != 0:
        raise DevError(f"missing Debian packages: {' '.join(missing)}")
    say(f"installing {', '.join(missing)}")
    with locked("packages"), _no_services(), heartbeat("apt-get"):
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *missing)


def _is_installed(name: str) -> bool:
    # dpkg-query takes 20 ms a call; the file list of an installed package says as much.
    return any(Path("/var/lib/dpkg/info").glob(f"{name}.list")) or any(Path("/var/lib/dpkg/info").glob(f"{name}:*.list"))


def _apt(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-q", *arguments]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DevError(f"apt-get {arguments[0]} failed:\n{result.stderr[-2000:]}")


@contextmanager
def _no_services() -> Iterator[None]:
    """Keep package scripts from starting a machine-wide containerd: ours have own sockets."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)


def main() -> int:
    """Install everything that either the cluster or the images need."""
    ensure_packages((*CLUSTER_PACKAGES, *IMAGE_PACKAGES))
    return 0


if __name__ == "__main__":
    run_main(main)
