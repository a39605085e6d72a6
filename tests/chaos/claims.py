"""What the statuses of batches claim while faults are played, held against what is on disk."""

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from bench.failures.stage import Stage
from tests.beside import beside
from tests.chaos.volume import output_of
from tests.outputs import committed_items

_LOOK_SECONDS = 0.25


def untrue(status: Mapping[str, Any], committed: int, *, published: bool) -> str:
    """What a batch's status claims and isn't so; empty where it is. The disk was read after the status."""
    completed = (status.get("progress") or {}).get("completed", 0)
    if completed > committed:
        return f"{completed} items are completed by the status, and {committed} are committed"
    if status.get("phase") == "Succeeded" and not published:
        return "it has succeeded by the status, and its output has no manifest"
    return ""


class Claims:
    """Looks at all batches again and again; `wrong` is what was claimed and wasn't so, `looks` how often a status was held."""

    def __init__(self, at: Stage) -> None:
        self._at = at
        self.wrong: list[str] = []
        self.looks = 0

    def held(self) -> AbstractContextManager[None]:
        """Look until the block ends."""
        return beside(self._run)

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(_LOOK_SECONDS):
            try:
                listed = self._at.api.get(self._at.jobs) or {}
            except Exception:  # noqa: BLE001 -- the API server is away: it is asked again
                continue
            for job in listed.get("items", ()):
                self._look(job)

    def _look(self, job: Mapping[str, Any]) -> None:
        name = job["metadata"]["name"]
        where = output_of(self._at.volume) / name
        if "output" not in job["spec"] or "status" not in job:
            return
        self.looks += 1
        if problem := untrue(job["status"], committed_items(where), published=(where / "manifest.json").exists()):
            self.wrong.append(f"{name}: {problem}")
