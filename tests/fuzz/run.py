"""`python -m tests.fuzz.run TARGET SECONDS`: look for inputs that break a target, guided by coverage. Needs atheris (`make fuzz`)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["inference_worker"]):
    from tests.fuzz.targets import TARGETS, seeds


def main() -> None:
    """Run one target for so many seconds; the library exits non-zero with the input that broke it."""
    target, seconds = sys.argv[1], int(sys.argv[2])
    corpus = Path(tempfile.mkdtemp())
    for number, seed in enumerate(seeds()[target]):
        (corpus / str(number)).write_bytes(seed)
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-max_len=2048", "-verbosity=0", str(corpus)], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
