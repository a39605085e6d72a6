"""`report`: what somebody else needs to find the cause, in one file and without secrets."""

import io
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from inference_client import __version__, calls
from inference_client.calls import Call, Raw, Resource
from inference_client.client import Client
from inference_client.errors import ClientError
from kubectl_inference import draw, redact, visible
from kubectl_inference.gather import Reader, now, snapshot
from kubectl_inference.options import Context, Job, Kubeconfig, Namespace, connected
from kubectl_inference.pages.placement import explanation
from kubectl_inference.pages.status import status_page

_CONFIG_MAPS = Resource("/api/v1", "configmaps")
_OPERATOR = "app.kubernetes.io/name=inference-operator"
_LOG_BYTES = 4 << 20
_LOG_LINES = 5000
_LOGS = 20


def report(
    job: Job,
    file: Annotated[Path | None, typer.Option("--file", help="Where to write it; by default JOB-report.tar.gz here.")] = None,
    operator_namespace: Annotated[str, typer.Option(help="Where the operator runs.")] = "inference-system",
    no_logs: Annotated[bool, typer.Option("--no-logs", help="Leave logs out.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Write a support bundle, with secrets redacted.

    It holds the job and what belongs to it, its page, events and logs.
    """
    target = file or Path(f"{job}-report.tar.gz")
    with connected(kubeconfig, context, namespace) as client:
        made = list(_files(client, job, operator_namespace, logs=not no_logs))
    try:
        _pack(target, f"{job}-report", made)
    except OSError as error:
        raise ClientError(f"{target} can't be written: {error}") from error
    draw.lines([str(target)])
    draw.warn("values of variables, credentials, and inputs in place are redacted; look through it before you hand it on")


def _files(client: Client, name: str, system: str, *, logs: bool) -> Iterator[tuple[str, str]]:
    found = snapshot(client, name, client.namespace)
    reader, operator = Reader(client, client.namespace), Reader(client, system)
    job = client.transport.send(calls.get(calls.JOBS, client.namespace, name))
    pods = reader.pods(found.job)
    page = status_page(found)
    told = "\n".join(line for section in explanation(found) for line in (section.title, *section.texts()))
    yield "version.txt", f"kubectl-inference {__version__}\ntaken {now():%Y-%m-%dT%H:%M:%SZ}\n"
    yield "status.txt", _text(f"{page.text()}\n\n{told}\n")
    yield "job.yaml", _yaml(job)
    if "://" not in found.job.spec.model and (model := reader.one("the model", calls.MODELS, found.job.spec.model)) is not None:
        yield "model.yaml", _yaml(model)
    yield "pods.yaml", _yaml({"items": pods})
    yield "events.yaml", _yaml({"items": reader.all("events", calls.EVENTS)})
    yield "claims.yaml", _yaml({"items": reader.all("claims", calls.CLAIMS)})
    yield "operator/pods.yaml", _yaml({"items": operator.all("operator pods", calls.PODS, labels=_OPERATOR)})
    yield "operator/settings.yaml", _yaml({"items": operator.all("operator settings", _CONFIG_MAPS, labels=_OPERATOR)})
    if logs:
        # Whoever may create pods may give any number of them the label.
        for pod in pods[-_LOGS:]:
            yield f"logs/{pod['metadata']['name']}.log", _log(client, client.namespace, pod)
        for pod in operator.all("operator pods", calls.PODS, labels=_OPERATOR):
            yield f"operator/{pod['metadata']['name']}.log", _log(client, system, pod)
    if unread := sorted({*reader.unread, *operator.unread}):
        yield "unread.txt", "".join(f"{one} can't be read\n" for one in unread)


def _log(client: Client, namespace: str, pod: Raw) -> str:
    """The newest lines of a pod's first container, or why there are none."""
    path = f"{calls.PODS.path(namespace, pod['metadata']['name'])}/log"
    container = pod["spec"]["containers"][0]["name"]
    query = (("container", container), ("tailLines", str(_LOG_LINES)), ("limitBytes", str(_LOG_BYTES)))
    try:
        return _text(str(client.transport.send(Call("GET", path, query, text=True))["text"]))
    except ClientError as error:
        return _text(f"no log: {error}\n")


def _text(found: str) -> str:
    """What whoever helps may read in a terminal."""
    return visible.block(redact.text(found))


def _yaml(found: Raw) -> str:
    return draw.dump(redact.document(found))


def _pack(target: Path, folder: str, files: list[tuple[str, str]]) -> None:
    """Write the archive, for its owner alone. What lies at its place is replaced: a link there leads it nowhere."""
    descriptor, made = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, content in files:
                data = content.encode(errors="backslashreplace")
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))
        Path(made).replace(target)
    except BaseException:
        Path(made).unlink()
        raise
