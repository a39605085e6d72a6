"""What goes on beside a block, in a thread of its own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(run: Callable[[threading.Event], None]) -> Iterator[None]:
    """Have something run until the block ends, which it is told by the event; then it is waited for."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
