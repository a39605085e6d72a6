"""The options that commands share, named and meant as kubectl's."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum, StrEnum
from typing import Annotated, Any

import typer

from inference_client import calls, steps
from inference_client.client import Client

KIND = "inferencejob.inference.myorg"

_PREFIX = re.compile(r"^(ij|inferencejobs?)(\.inference\.myorg)?/", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Output(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class PageOutput(StrEnum):
    """How a page is written."""

    PAGE = "page"
    JSON = "json"
    YAML = "yaml"


class DocumentOutput(StrEnum):
    """How an answer is written that has no page."""

    JSON = "json"
    YAML = "yaml"


class Exit(IntEnum):
    """Exit codes; a wrong use has the one that Typer gives it."""

    OK = 0
    ERROR = 1
    JOB_FAILED = 3
    TIMED_OUT = 4


def duration(text: str | float) -> float:
    """Seconds of `30s`, `1h30m`, `90`; what kubectl takes as a duration. Raises BadParameter."""
    if isinstance(text, float):
        # A default of ours.
        return text
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    found = _DURATION.findall(text)
    if not found or "".join(number + unit for number, unit in found) != text:
        raise typer.BadParameter(f"{text!r} is no duration: write for example 30s, 10m or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in found)


def job_name(text: str) -> str:
    """A job's name, also of `ij/NAME`."""
    return _PREFIX.sub("", text)


def waiting(default: str) -> Any:
    """The option --timeout, which shows its default as people write it."""
    return typer.Option(
        "--timeout", metavar="DURATION", parser=duration, help="How long to wait, for example 30s or 10m.", show_default=default
    )


@contextmanager
def connected(kubeconfig: str | None, context: str | None, namespace: str | None) -> Iterator[Client]:
    """A client by the options, ended with the command."""
    with Client.from_kubeconfig(kubeconfig, context=context, namespace=namespace) as client:
        yield client


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of jobs that begin so, for the shell."""
    given = ctx.params
    try:
        with connected(given.get("kubeconfig"), given.get("context"), given.get("namespace")) as client:
            found = client.run(steps.pages(calls.JOBS, client.namespace))["items"]
            return [name for one in found if (name := str(one["metadata"]["name"])).startswith(incomplete)]
    except Exception:  # noqa: BLE001 -- a shell that completes has no place for an error
        return []


Job = Annotated[
    str, typer.Argument(metavar="JOB", help="The InferenceJob, as NAME or ij/NAME.", parser=job_name, autocompletion=complete_jobs)
]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="The namespace; by default that of the context.")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]
Context = Annotated[str | None, typer.Option("--context", help="The context of the kubeconfig.")]
Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", help="The kubeconfig; by default KUBECONFIG or ~/.kube/config.")]
Selector = Annotated[str, typer.Option("--selector", "-l", help="Labels that objects must have, for example team=vision.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again after each change, until interrupted or --timeout.")]
Form = Annotated[Output, typer.Option("--output", "-o", help="How to write it.")]
PageForm = Annotated[PageOutput, typer.Option("--output", "-o", help="How to write it.")]
