"""`make fuzz`: every target for so many seconds, in an environment of its own that has atheris."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def main() -> int:
    """The number of targets that broke."""
    seconds = sys.argv[1] if len(sys.argv) > 1 else "60"
    folder = ROOT / "build" / "fuzz"
    extra = folder / "atheris"
    if not extra.exists():
        extra.parent.mkdir(parents=True, exist_ok=True)
        strict = ("--require-hashes", "--requirement", str(REQUIREMENTS))
        subprocess.run([sys.executable, "-m", "uv", "pip", "install", "--quiet", *strict, "--target", str(extra)], check=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT), str(extra)])}
    broken = 0
    for target in TARGETS:
        sys.stdout.write(f"{target} for {seconds} s\n")
        sys.stdout.flush()
        done = subprocess.run([sys.executable, "-m", "tests.fuzz.run", target, seconds], cwd=ROOT, env=environment, check=False)
        broken += done.returncode != 0
    return broken


if __name__ == "__main__":
    sys.exit(main())
