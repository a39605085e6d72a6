"""`download`: a batch's output to a folder of this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich import progress as bars

from inference_client.downloads import Progress
from inference_client.volume_pod import DEFAULT_IMAGE
from kubectl_inference import draw
from kubectl_inference.options import Context, Job, Kubeconfig, Namespace, PageForm, PageOutput, connected, waiting


def download(
    job: Job,
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIRECTORY", help="The folder to write to; by default one with the job's name.")
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Also take an output that isn't finished, with what is committed so far.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace another output that is in the folder.")] = False,
    image: Annotated[
        str, typer.Option(envvar="KUBECTL_INFERENCE_IMAGE", help="The helper pod's image: any with sleep, cat and ls.")
    ] = DEFAULT_IMAGE,
    output: PageForm = PageOutput.PAGE,
    timeout: Annotated[float, waiting("10m")] = 600.0,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Fetch a batch's output to a folder.

    Each file is checked by its digest. Files that are there already and right are kept, so a download that was interrupted goes on.
    """
    with connected(kubeconfig, context, namespace) as client, _bar(job) as moved:
        target = directory or Path(job)
        found = client.jobs.download(job, target, partial=partial, force=force, image=image, timeout=timeout, on_progress=moved)
    if output is not PageOutput.PAGE:
        document = {"directory": str(found.directory), "files": [one.name for one in found.files]}
        draw.document({**document, "items": found.items, "total": found.total, "whole": found.whole, "kept": found.kept}, output)
        return
    draw.lines([str(found.directory)])
    kept = f", {found.kept} of them were there" if found.kept else ""
    draw.warn(f"{found.items} of {found.total} items in {len(found.files)} files{kept}")
    if not found.whole:
        draw.warn("the output isn't finished: the same command fetches the rest later")


@contextmanager
def _bar(name: str) -> Iterator[Callable[[Progress], None]]:
    console = draw.stderr()
    columns = (
        bars.TextColumn("{task.fields[name]}", markup=False),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.description}", markup=False),
    )
    with bars.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", name=name, total=None)

        def moved(now: Progress) -> None:
            bar.update(task, completed=now.items, total=now.total, description=f"{now.bytes / 1e6:.1f} MB")

        yield moved
