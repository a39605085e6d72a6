"""What a batch has answered."""

import json
from dataclasses import dataclass
from typing import Any

from inference_client.api import InferenceJob


@dataclass(frozen=True, slots=True)
class Result:
    """The answers of a batch: `rows` where they are small and in the status, else `uri`, the directory with manifest and chunks."""

    completed: int
    failed: int
    rows: tuple[dict[str, Any], ...] = ()
    uri: str | None = None


def result_of(job: InferenceJob) -> Result:
    """The result of a batch that has succeeded."""
    status = job.status
    rows: tuple[dict[str, Any], ...] = ()
    uri = job.spec.output.uri if job.spec.output is not None else None
    if status.output is not None:
        uri = status.output.uri or uri
        rows = tuple(json.loads(line) for line in (status.output.data or "").splitlines())
    done = status.progress
    return Result(completed=done.completed if done else len(rows), failed=done.failed if done else 0, rows=rows, uri=uri)
