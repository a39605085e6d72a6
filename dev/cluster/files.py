"""Writing configuration files without disturbing the processes that watch them."""

from pathlib import Path

from dev.cache import digest


def write_versioned(folder: Path, stem: str, suffix: str, text: str) -> Path:
    """Write a file named after its content: other settings, other command, hence a restart."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{digest([text.encode()])}.{suffix}"
    for old in folder.glob(f"{stem}-*.{suffix}"):
        if old != path:
            old.unlink()
    write_if_changed(path, text)
    return path


def write_if_changed(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write the file only if its text differs: some processes watch theirs."""
    if path.exists() and path.read_text() == text:
        return
    path.touch(mode=mode)
    path.write_text(text)
