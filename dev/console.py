"""What a developer sees while something takes long; results go to stdout, this to stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

HEARTBEAT_SECONDS = 15.0


class DevError(Exception):
    """A failure with a message that tells the developer what to do; shown without a traceback."""


def say(message: str) -> None:
    """Print one line of progress."""
    print(message, file=sys.stderr, flush=True)


@contextmanager
def heartbeat(what: str, *, every_seconds: float = HEARTBEAT_SECONDS) -> Iterator[None]:
    """Say now and then what is still waited for: a slow step must not look like a hung one."""
    done = Event()
    start = time.monotonic()

    def beat() -> None:
        while not done.wait(every_seconds):
            say(f"  waiting for {what} ({time.monotonic() - start:.0f} s)")

    thread = Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def wait_until(
    what: str,
    probe: Callable[[], bool],
    *,
    timeout_seconds: float,
    check_alive: Callable[[], None] | None = None,
    poll_seconds: float = 0.1,
) -> None:
    """Poll until `probe` holds; `check_alive` may end the wait early by raising."""
    deadline = time.monotonic() + timeout_seconds
    with heartbeat(what, every_seconds=5.0):
        while not probe():
            if check_alive is not None:
                check_alive()
            if time.monotonic() > deadline:
                raise DevError(f"gave up on {what} after {timeout_seconds:.0f} s")
            time.sleep(poll_seconds)


def run_main(main: Callable[[], int]) -> None:
    """Run a command line entry point: a DevError becomes one line and exit status 1."""
    try:
        status = main()
    except DevError as error:
        say(f"error: {error}")
        status = 1
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
