"""The cluster's helper process: provisions volumes and keeps simulated devices on their nodes.

Level-based: a watch says only *that* something changed; a pass reads what is there and repairs it.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event, Thread

from dev.cluster.api import Api, ApiError, api_as
from dev.cluster.devices import offer_devices
from dev.cluster.layout import NODES, Layout, Options, full_control_plane
from dev.cluster.volumes import CLAIMS, VOLUMES, reconcile_volumes
from dev.console import say

_RETRY_SECONDS = 1.0
# A pass without any event, should a watch ever miss one.
_RESYNC_SECONDS = 60.0


def main() -> None:
    """Run until killed."""
    layout = Layout(Path(sys.argv[1]))
    api = api_as(full_control_plane(layout, Options()), "agent")
    duties: list[tuple[tuple[str, ...], Callable[[], None]]] = [
        ((CLAIMS, VOLUMES), lambda: reconcile_volumes(api, layout.volumes)),
    ]
    for node in NODES:
        if node.gpus:
            selector = f"/api/v1/nodes?fieldSelector=metadata.name%3D{node.name}"
            duties.append(((selector,), partial(offer_devices, api, node)))
    threads = [Thread(target=_serve, args=(api, *duty), daemon=True) for duty in duties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _serve(api: Api, paths: tuple[str, ...], repair: Callable[[], None]) -> None:
    """Run one duty for ever: a pass after each change and now and then without one."""
    changed = Event()
    for path in paths:
        Thread(target=_signal_changes, args=(api, path, changed), daemon=True).start()
    while True:
        changed.wait(_RESYNC_SECONDS)
        changed.clear()
        try:
            repair()
        except (ApiError, OSError, KeyError) as error:
            say(f"retrying after {error}")
            time.sleep(_RETRY_SECONDS)
            changed.set()


def _signal_changes(api: Api, path: str, changed: Event) -> None:
    """Set the event at each change of a collection, and whenever changes may have been missed."""
    while True:
        try:
            version = api.get(path)["metadata"]["resourceVersion"]
            changed.set()
            for event in api.watch(path, version=version):
                if event["type"] == "ERROR":
                    break
                if event["type"] != "BOOKMARK":
                    changed.set()
        except ApiError:
            time.sleep(_RETRY_SECONDS)


if __name__ == "__main__":
    main()
