"""`status` and `explain`: one job on a page."""

from collections.abc import Callable
from typing import Annotated

from rich.console import RenderableType

from inference_client.client import Client
from inference_client.errors import UnreadableError
from kubectl_inference import draw
from kubectl_inference.gather import snapshot
from kubectl_inference.options import Context, Job, Kubeconfig, Namespace, PageForm, PageOutput, Watch, connected, waiting
from kubectl_inference.pages.conditions import told_all_the_same
from kubectl_inference.pages.parts import Page
from kubectl_inference.pages.placement import explanation
from kubectl_inference.pages.status import headline, notes, status_page
from kubectl_inference.snapshot import Snapshot


def status(
    job: Job,
    namespace: Namespace = None,
    output: PageForm = PageOutput.PAGE,
    watch: Watch = False,
    timeout: Annotated[float, waiting("1h")] = 3600.0,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show on one page how a job stands, and what to do.

    It has the cause, what to do, deadline, place, conditions, pods and events.
    """
    with connected(kubeconfig, context, namespace) as client:
        _show(client, job, output, status_page)
        if watch:
            _watch(client, job, timeout, lambda: _show(client, job, output, status_page))


def explain(
    job: Job,
    namespace: Namespace = None,
    output: PageForm = PageOutput.PAGE,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Explain why a job runs where it does, or why it has no place."""
    with connected(kubeconfig, context, namespace) as client:
        _show(client, job, output, lambda found: Page(headline(found), explanation(found)))


def _show(client: Client, job: str, output: PageOutput, page: Callable[[Snapshot], Page]) -> None:
    try:
        found = snapshot(client, job, client.namespace)
    except UnreadableError as error:
        draw.show_error(draw.sections(told_all_the_same(error)))
        raise
    made = page(found)
    if output is PageOutput.PAGE:
        rendered: RenderableType = draw.page(made)
        draw.show(rendered)
    else:
        draw.document({"name": job, "namespace": client.namespace, **draw.of_page(made)}, output)
    for note in notes(found):
        draw.warn(note)


def _watch(client: Client, job: str, timeout: float, show: Callable[[], None]) -> None:
    changes = client.jobs.watch(job, timeout=timeout)
    # The first is how it stands, which is shown already.
    next(changes)
    for _ in changes:
        draw.clear()
        show()
