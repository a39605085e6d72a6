"""A thin wrapper of buildah with a store of its own, apart from the developer's images."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from dev.cache import cache_root
from dev.console import DevError, heartbeat


class Buildah:
    """Build images and write them to archives; needs root, but no daemon and no registry."""

    def __init__(self) -> None:
        store = cache_root() / "buildah"
        self._command = [
            *("buildah", "--root", str(store / "storage"), "--runroot", str(store / "run")),
            *("--storage-driver", "overlay"),
        ]

    def has(self, name: str) -> bool:
        """Tell whether the store holds the image."""
        return self._call(["inspect", "--type", "image", name]).returncode == 0

    def names(self) -> list[str]:
        """Return the names of all images, the newest first."""
        listed = self._call(["images", "--format", "{{.Name}}:{{.Tag}}"])
        return listed.stdout.split()

    def build(
        self,
        name: str,
        *,
        context: Path,
        containerfile: Path,
        arguments: Mapping[str, str] | None = None,
        mounts: Sequence[tuple[Path, str]] = (),
    ) -> None:
        """Build an image; `mounts` are visible to its RUN steps and stay out of copied layers."""
        command = ["bud", "--isolation", "chroot", "--layers", "--pull-never", "--format", "oci"]
        for key, value in (arguments or {}).items():
            command += ["--build-arg", f"{key}={value}"]
        for source, target in mounts:
            command += ["--volume", f"{source}:{target}:ro"]
        command += ["--tag", name, "--file", str(containerfile), str(context)]
        with heartbeat(f"the build of {name}"):
            self._require(command)

    def save(self, name: str, archive: Path) -> None:
        """Write the image to an OCI archive; compressing costs more time than it saves disk."""
        self._require(["push", "--disable-compression", name, f"oci-archive:{archive}:{name}"])

    def remove(self, name: str) -> None:
        """Remove an image's name and the layers that no other image uses."""
        self._call(["rmi", name])

    def _require(self, arguments: Sequence[str]) -> None:
        result = self._call(arguments)
        if result.returncode != 0:
            output = (result.stdout + result.stderr)[-4000:]
            raise DevError(f"buildah {arguments[0]} failed:\n{output}")

    def _call(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        command = [*self._command, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
