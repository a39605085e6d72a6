"""The machine's own pip configuration, for uv and for image builds while they run.

Where packages come from is the machine's matter: it belongs neither into the project nor an image.
"""

import configparser
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VARIABLE = "PIP_"
# Options that only make sense on this machine, or that the build decides itself.
_SKIPPED = {"config-file", "cache-dir", "target", "prefix", "root", "user", "require-virtualenv"}
_WITH_PATHS = {"cert", "client-cert", "find-links"}


@contextmanager
def pip_mounts() -> Iterator[list[tuple[Path, str]]]:
    """Yield the mounts that let pip work in a build as it does on this machine."""
    options, mounts = _portable(_machine_options())
    with tempfile.TemporaryDirectory(prefix="pip-config-") as folder:
        file = Path(folder) / "pip.conf"
        parser = configparser.RawConfigParser()
        parser["global"] = options
        with file.open("w") as handle:
            parser.write(handle)
        yield [(file, "/etc/pip.conf"), *mounts]


def uv_environment() -> dict[str, str]:
    """Return the variables that make uv, which does not read pip's files, use the same sources."""
    options = _machine_options()
    names = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
        "cert": "SSL_CERT_FILE",
    }
    return {names[key]: value for key, value in options.items() if key in names}


def _machine_options() -> dict[str, str]:
    """Merge pip's files and variables in pip's own order."""
    parser = configparser.RawConfigParser()
    home = Path.home()
    files = [Path("/etc/pip.conf"), home / ".pip/pip.conf", home / ".config/pip/pip.conf"]
    if chosen := os.environ.get("PIP_CONFIG_FILE"):
        files.append(Path(chosen))
    parser.read(files)
    options: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            options.update(parser.items(section))
    for key, value in os.environ.items():
        if key.startswith(_VARIABLE) and value:
            options[key.removeprefix(_VARIABLE).lower().replace("_", "-")] = value
    return {key: value for key, value in options.items() if key not in _SKIPPED}


def _portable(options: dict[str, str]) -> tuple[dict[str, str], list[tuple[Path, str]]]:
    """Replace paths of this machine by paths below a mount."""
    mounts: list[tuple[Path, str]] = []
    result: dict[str, str] = {}
    for key, value in options.items():
        words = value.split()
        for position, word in enumerate(words):
            path = Path(word)
            if key in _WITH_PATHS and path.is_absolute() and path.exists():
                words[position] = f"/run/machine-pip/{key}-{len(mounts)}"
                mounts.append((path, words[position]))
        result[key] = " ".join(words)
    return result, mounts
