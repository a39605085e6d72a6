"""`wait`: until a job has come so far, with a bar and then the result or the cause."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from inference_client.api import InferenceJob
from inference_client.client import Client
from inference_client.errors import JobFailedError, WaitTimeoutError
from inference_client.job_state import Goal, is_batch
from inference_client.result import result_of
from kubectl_inference import draw, visible
from kubectl_inference.gather import now, snapshot
from kubectl_inference.options import Context, Exit, Job, Kubeconfig, Namespace, connected, waiting
from kubectl_inference.pages.advice import in_the_way
from kubectl_inference.pages.status import brief, status_page
from kubectl_inference.snapshot import Snapshot


def wait(
    job: Job,
    goal: Annotated[
        Goal,
        typer.Option(
            "--for",
            case_sensitive=False,
            help="How far it has to come; Finished is the end of a batch, and a service that is ready.",
        ),
    ] = Goal.FINISHED,
    namespace: Namespace = None,
    timeout: Annotated[float, waiting("10m")] = 600.0,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Wait for a job, and print its result.

    It prints the cause as soon as nothing but a change helps.
    """
    with connected(kubeconfig, context, namespace) as client:
        raise typer.Exit(finish(client, job, client.namespace, timeout, goal))


def finish(client: Client, name: str, namespace: str, timeout: float, goal: Goal = Goal.FINISHED) -> int:
    """Wait for a job, and print its result or the cause of its failure; returns the exit code. Raises ClientError."""
    try:
        with shown(name) as on_change:
            done = client.jobs.wait(name, goal, namespace=namespace, timeout=timeout, on_change=on_change)
    except (JobFailedError, WaitTimeoutError) as error:
        draw.show_error(draw.page(status_page(snapshot(client, name, namespace))))
        draw.error(f"error: {error}")
        return Exit.JOB_FAILED if isinstance(error, JobFailedError) else Exit.TIMED_OUT
    if goal is not Goal.SUSPENDED:
        # What is suspended answers nobody.
        _print_result(done)
    return Exit.OK


def _print_result(job: InferenceJob) -> None:
    if not is_batch(job):
        draw.lines([job.status.endpoint or ""])
        return
    found = result_of(job)
    draw.lines([draw.as_json(row) for row in found.rows] or [found.uri or ""])
    if found.failed:
        draw.warn(f"the model refused {found.failed} items")


@contextmanager
def shown(name: str) -> Iterator[Any]:
    """What is called with each state of the job: a bar on a terminal, else a line for each new word."""
    console = draw.stderr()
    told: list[str] = []
    if not console.is_terminal:

        def tell(new: InferenceJob) -> None:
            word, why = brief(Snapshot(new, now())), in_the_way(new)
            if told[-1:] != [word]:
                told.append(word)
                draw.warn(f"{name}: {word}" if why is None else f"{name}: {word}: {why.message}")

        yield tell
        return
    with Progress(
        TextColumn("{task.fields[name]}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("Pending", name=name, total=None)

        def move(new: InferenceJob) -> None:
            progress, why = new.status.progress, in_the_way(new)
            if why is not None and told[-1:] != [why.reason]:
                told.append(why.reason)
                # By the bar's own console, which moves the bar out of the way.
                bar.console.print(draw.note(f"{name}: {why.reason}: {why.message}"))
            bar.update(
                task,
                description=visible.line(brief(Snapshot(new, now()))),
                total=progress.total if progress else None,
                completed=progress.completed if progress else 0,
            )

        yield move
