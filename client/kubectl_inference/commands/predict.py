"""`predict`: ask a service once, through a port that the plug-in forwards, or at an address."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from inference_client.api import InferenceJob
from inference_client.client import Client
from inference_client.errors import InvalidError, NotFoundError
from kubectl_inference import draw
from kubectl_inference.gather import Reader
from kubectl_inference.options import Context, DocumentOutput, Job, Kubeconfig, Namespace, connected, waiting
from kubectl_inference.snapshot import pod_view

_PORTS = {"http": 8000, "grpc": 8001}


def predict(
    job: Job,
    data: Annotated[
        str,
        typer.Option(
            "--data", "-d", help="Inputs as JSON ({NAME: values}, or the values of the only input), or @FILE: JSON, .npy, .npz."
        ),
    ],
    grpc: Annotated[bool, typer.Option("--grpc", help="Ask by gRPC rather than HTTP.")] = False,
    address: Annotated[str | None, typer.Option(help="HOST:PORT of the service, rather than a forwarded port.")] = None,
    model: Annotated[str | None, typer.Option(help="The model's name, where it isn't the job's.")] = None,
    version: Annotated[str, typer.Option(help="The model's version; without it, the one that is served.")] = "",
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="NAME: VALUE, for example an Authorization.")] = None,
    ca_file: Annotated[str | None, typer.Option(help="CAs in PEM that sign for a service with serve.tls.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure-skip-tls-verify", help="Don't check who answers.")] = False,
    timeout: Annotated[float, waiting("30s")] = 30.0,
    output: Annotated[DocumentOutput, typer.Option("--output", "-o", help="How to write it.")] = DocumentOutput.JSON,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Ask a service for one prediction."""
    # NumPy and tritonclient take half a second to import, which no other command should wait for.
    from kubectl_inference import tensors
    from kubectl_inference.inference import Way, ask

    value = tensors.parse(*_given(data))
    headers = dict(_header(one) for one in header or ())
    with connected(kubeconfig, context, namespace) as client:
        found = client.jobs.get(job)
        if found.spec.serve is None and found.spec.input is not None:
            raise InvalidError(f"inferencejob/{job} is a batch: it answers no requests; its result is in status.output")
        tls = found.spec.serve is not None and found.spec.serve.tls is not None
        way = Way(grpc=grpc, tls=tls, ca_file=ca_file, insecure=insecure, headers=headers, timeout=timeout)
        name = model or (found.status.model.name if found.status.model else found.spec.model)
        with _address(client, found, address, _PORTS["grpc" if grpc else "http"]) as at:
            answer = ask(at, name, version, value, way)
    draw.document(answer, output)


def _given(data: str) -> tuple[bytes, str]:
    if not data.startswith("@"):
        return data.encode(), "--data"
    try:
        return Path(data[1:]).read_bytes(), data[1:]
    except OSError as error:
        raise InvalidError(f"{data[1:]} can't be read: {error}") from error


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise typer.BadParameter(f"{text!r} is no header: write NAME: VALUE")
    return name.strip().lower(), value.strip()


@contextmanager
def _address(client: Client, job: InferenceJob, given: str | None, port: int) -> Iterator[str]:
    if given is not None:
        yield given
        return
    from kubectl_inference import pod_streams

    pods = [pod_view(one) for one in Reader(client, client.namespace).pods(job)]
    ready = next((one.name for one in reversed(pods) if one.ready), None)
    if ready is None:
        name = job.metadata.name
        raise NotFoundError(f"inferencejob/{name} has no worker that answers; kubectl inference status {name} says why")
    with pod_streams.forwarded(client, client.namespace, ready, port) as at:
        yield at
