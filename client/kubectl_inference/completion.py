"""`kubectl_complete-inference`: what kubectl asks for candidates, with the plug-in's arguments, the last one unfinished."""

import contextlib
import os
import shlex
import sys

from typer.completion import completion_init  # type: ignore[attr-defined]  # not in its __all__, and stable

from kubectl_inference.app import app

_NO_FILES = 4
"""kubectl's directive: what completes is in the list, so names of files are not."""


def main() -> None:
    """Print a candidate a line, and kubectl's directive last."""
    words = ["kubectl-inference", *(sys.argv[1:] or [""])]
    # Typer's own way to complete for bash, which gives the candidates alone.
    os.environ |= {
        "_KUBECTL_INFERENCE_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(words[:-1]) + f" {words[-1]}",
        "COMP_CWORD": str(len(words) - 1),
    }
    completion_init()
    with contextlib.suppress(SystemExit):
        app(prog_name="kubectl-inference")
    print(f":{_NO_FILES}")  # noqa: T201 -- kubectl reads it


if __name__ == "__main__":
    main()
