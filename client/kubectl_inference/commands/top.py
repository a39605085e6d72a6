"""`top`: all jobs by what is urgent."""

import time
from typing import Annotated

import typer

from inference_client import calls, steps
from inference_client.api import InferenceJob
from inference_client.calls import Raw
from inference_client.client import Client
from inference_client.errors import ExpiredError
from kubectl_inference import draw
from kubectl_inference.gather import now
from kubectl_inference.options import (
    KIND,
    AllNamespaces,
    Context,
    Form,
    Kubeconfig,
    Namespace,
    Output,
    Selector,
    Watch,
    connected,
    waiting,
)
from kubectl_inference.pages.top import SortBy
from kubectl_inference.pages.top import top as top_table


def top(
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    field_selector: Annotated[str, typer.Option(help="Fields that jobs must have, for example spec.model=digits.")] = "",
    sort_by: Annotated[SortBy, typer.Option(help="What comes first.")] = SortBy.DEADLINE,
    output: Form = Output.TABLE,
    watch: Watch = False,
    timeout: Annotated[float, waiting("1h")] = 3600.0,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """List jobs by deadline, latency or load, the most urgent first."""
    with connected(kubeconfig, context, namespace) as client:
        where = None if all_namespaces else client.namespace
        give_up = time.monotonic() + timeout
        while True:
            found = client.run(steps.pages(calls.JOBS, where, labels=selector, fields=field_selector))
            _show(found, output, sort_by, where)
            if not watch or not _changed(client, where, found, selector, field_selector, give_up):
                return
            draw.clear()


def _show(found: Raw, output: Output, sort_by: SortBy, where: str | None) -> None:
    items: list[Raw] = found["items"]
    if output in {Output.JSON, Output.YAML}:
        draw.document({"apiVersion": "v1", "kind": "List", "items": items}, output)
    elif output is Output.NAME:
        draw.lines(f"{KIND}/{one['metadata']['name']}" for one in items)
    elif not items:
        draw.error(f"No InferenceJobs found{'' if where is None else f' in namespace {where}'}.")
    else:
        jobs = steps.listed(items, InferenceJob)
        for error in jobs.unreadable:
            # Of whatever namespace it is, it hides no other.
            draw.warn(f"left out: {error.namespace}/{error}")
        draw.show(draw.columns(top_table(jobs, now(), by=sort_by, namespaces=where is None, wide=output is Output.WIDE)))


def _changed(client: Client, where: str | None, found: Raw, labels: str, fields: str, give_up: float) -> bool:
    """Wait for a change of any of them; False when the time is over."""
    since = found.get("metadata", {}).get("resourceVersion", "")
    while (left := give_up - time.monotonic()) > 0:
        seconds = max(1, min(steps.WATCH_SECONDS, round(left)))
        call = calls.next_change(calls.JOBS, where, since=since, seconds=seconds, labels=labels, fields=fields)
        try:
            if client.transport.send(call):
                return True
        except ExpiredError:
            # The list is read anew.
            return True
    return False
