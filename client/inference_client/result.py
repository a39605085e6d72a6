"""What a batch has answered."""

import json
from dataclasses import dataclass
from typing import Any

from inference_client.api import InferenceJob
from inference_client.errors import ClientError


@dataclass(frozen=True, slots=True)
class Result:
    """The answers of a batch: `rows` where they are small and in the status, else `uri`, the directory with manifest and chunks."""

    completed: int
    failed: int
    rows: tuple[dict[str, Any], ...] = ()
    uri: str | None = None


def result_of(job: InferenceJob) -> Result:
    """The result of a batch that has succeeded. Raises ClientError for one that is no JSON lines."""
    status = job.status
    rows: tuple[dict[str, Any], ...] = ()
    uri = job.spec.output.uri if job.spec.output is not None else None
    if status.output is not None:
        uri = status.output.uri or uri
        rows = _rows(job.metadata.name, status.output.data or "")
    done = status.progress
    return Result(completed=done.completed if done else len(rows), failed=done.failed if done else 0, rows=rows, uri=uri)


def _rows(name: str, text: str) -> tuple[dict[str, Any], ...]:
    try:
        # A text in a row may hold what splitlines() takes for the end of a line, such as U+2028.
        return tuple(json.loads(line) for line in text.split("\n") if line.strip())
    except (ValueError, RecursionError) as error:
        raise ClientError(f"inferencejob/{name}: status.output.data is no JSON lines: {error}") from error
