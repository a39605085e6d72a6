"""`logs`: of a job's workers, found by their label."""

import queue
import threading
from collections.abc import Iterator
from typing import Annotated

import typer

from inference_client import calls
from inference_client.calls import Call
from inference_client.client import Client
from inference_client.errors import ClientError, NotFoundError
from kubectl_inference import draw
from kubectl_inference.gather import Reader
from kubectl_inference.options import Context, Job, Kubeconfig, Namespace, connected, duration, waiting
from kubectl_inference.snapshot import WORKER, PodView, pod_view

# As kubectl's --max-log-requests, so that a large service doesn't open as many streams as it has workers.
_AT_ONCE = 20


def logs(
    job: Job,
    namespace: Namespace = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the log grows, until --timeout.")] = False,
    current: Annotated[bool, typer.Option("--current", help="The newest worker alone, rather than all that are there.")] = False,
    attempt: Annotated[int | None, typer.Option(help="The worker of this attempt alone.")] = None,
    container: Annotated[str, typer.Option("--container", "-c", help="The container.")] = WORKER,
    tail: Annotated[int, typer.Option(help="The last lines of each worker alone; -1 for all.")] = -1,
    since: Annotated[
        float | None, typer.Option(parser=duration, metavar="DURATION", help="What was written in this time alone.")
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Begin each line with its time.")] = False,
    timeout: Annotated[float, waiting("24h")] = 86400.0,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print the logs of a job's workers.

    It prints those of all attempts whose pods are there.
    """
    with connected(kubeconfig, context, namespace) as client:
        chosen = _chosen(client, job, attempt=attempt, current=current)
        query = {
            "container": container,
            "follow": "true" if follow else "",
            "tailLines": str(tail) if tail >= 0 else "",
            "sinceSeconds": "" if since is None else str(max(1, round(since))),
            "timestamps": "true" if timestamps else "",
        }
        wanted = tuple((key, value) for key, value in query.items() if value)
        streams = [
            (
                "" if len(chosen) == 1 else f"[{one.name}] ",
                Call("GET", f"{calls.PODS.path(client.namespace, one.name)}/log", wanted, timeout_seconds=timeout, text=True),
            )
            for one in chosen
        ]
        draw.lines(_beside(client, streams) if follow else _in_turn(client, streams))


def _chosen(client: Client, name: str, *, attempt: int | None, current: bool) -> list[PodView]:
    reader = Reader(client, client.namespace)
    found = [pod_view(one) for one in reader.pods(client.jobs.get(name))]
    if attempt is not None:
        found = [one for one in found if one.attempt == attempt]
    if current:
        found = found[-1:]
    if not found:
        which = "" if attempt is None else f" of attempt {attempt}"
        raise NotFoundError(f"inferencejob/{name} has no worker{which} now; kubectl inference status {name} says why")
    if len(found) > _AT_ONCE:
        draw.warn(f"showing the newest {_AT_ONCE} of {len(found)} workers")
    return found[-_AT_ONCE:]


def _in_turn(client: Client, streams: list[tuple[str, Call]]) -> Iterator[str]:
    for prefix, call in streams:
        for line in client.transport.lines(call):
            yield prefix + line.decode(errors="replace")


def _beside(client: Client, streams: list[tuple[str, Call]]) -> Iterator[str]:
    """Lines as they come, of all streams, until all have ended."""
    lines: queue.Queue[str | ClientError | None] = queue.Queue(maxsize=1000)

    def read(prefix: str, call: Call) -> None:
        try:
            for line in client.transport.lines(call):
                lines.put(prefix + line.decode(errors="replace"))
        except ClientError as error:
            lines.put(error)
        lines.put(None)

    for prefix, call in streams:
        threading.Thread(target=read, args=(prefix, call), daemon=True).start()
    left = len(streams)
    while left:
        match lines.get():
            case None:
                left -= 1
            case ClientError() as error:
                draw.warn(str(error))
            case str() as line:
                yield line
