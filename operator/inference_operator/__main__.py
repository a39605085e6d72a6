"""`python -m inference_operator`."""

import os
import signal
import sys

# The rest takes a second to import, and pid 1 ignores what it has no handler for.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

from inference_operator.app import BEGIN_ANEW, main

code = main()
if code == BEGIN_ANEW:
    # By itself, since the kubelet waits longer each time: a slow API server may cost a short Lease again and again.
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 -- the command that this process was started with
sys.exit(code)
