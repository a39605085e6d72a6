"""`kubectl-inference`: kubectl runs it for `kubectl inference`."""

import os
import sys
from collections.abc import Sequence

from inference_client.errors import ClientError, JobFailedError, WaitTimeoutError
from kubectl_inference import draw
from kubectl_inference.app import app
from kubectl_inference.options import Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, by default that of the command line; errors go to stderr, and the exit code says of which kind they are."""
    try:
        # kubectl's users read "kubectl inference" in the usage, as they have typed it.
        app(arguments, prog_name="kubectl inference")
    except ClientError as error:
        draw.error(f"error: {error}")
        code = {JobFailedError: Exit.JOB_FAILED, WaitTimeoutError: Exit.TIMED_OUT}.get(type(error), Exit.ERROR)
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # `kubectl inference top | head`: whoever reads has seen enough.
        _write_no_more()
        sys.exit(Exit.OK)
    except OSError as error:
        # A full disk, for example.
        _write_no_more()
        draw.error(f"error: {error}")
        sys.exit(Exit.ERROR)


def _write_no_more() -> None:
    """Let what stdout still holds go nowhere, so that the end of the process doesn't fail for it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
