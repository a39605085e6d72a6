"""`submit`: create jobs from a file or from flags, and wait for the result."""

from enum import StrEnum
from typing import Annotated

import typer

from inference_client import calls
from inference_client.api import InferenceJob
from inference_client.calls import Raw
from inference_client.client import Client
from inference_client.steps import decode
from kubectl_inference import draw, manifests
from kubectl_inference.commands.wait import finish
from kubectl_inference.gather import now
from kubectl_inference.options import KIND, Context, Exit, Form, Kubeconfig, Namespace, Output, connected, duration, waiting


class DryRun(StrEnum):
    """How far a dry run goes."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


# Longer than others: each flag is a parameter.
def submit(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The job's name; without -f.")] = None,
    filename: Annotated[str | None, typer.Option("--filename", "-f", help="A file with jobs and models, or - for stdin.")] = None,
    model: Annotated[str | None, typer.Option(help="An InferenceModel's name, or a URI.")] = None,
    model_version: Annotated[str | None, typer.Option(help="A version of the InferenceModel.")] = None,
    model_digest: Annotated[str | None, typer.Option(help="sha256:HEX of the only file that may run.")] = None,
    input_: Annotated[str | None, typer.Option("--input", help="What to run over, as a URI: makes a batch.")] = None,
    data: Annotated[str | None, typer.Option(help="Small input as JSON lines, or @FILE: makes a batch.")] = None,
    items: Annotated[int | None, typer.Option(help="How many items the input holds, if known.")] = None,
    input_secret: Annotated[str | None, typer.Option(help="The Secret by which the store of --input is asked.")] = None,
    output_uri: Annotated[
        str | None,
        typer.Option("--output-uri", help="Where a batch writes, as pvc://CLAIM/PATH, s3://BUCKET/FOLDER or gs://BUCKET/FOLDER."),
    ] = None,
    output_secret: Annotated[str | None, typer.Option(help="The Secret by which the store of --output-uri is asked.")] = None,
    min_replicas: Annotated[int | None, typer.Option(help="Workers of a service that are always kept.")] = None,
    max_replicas: Annotated[int | None, typer.Option(help="Workers of a service at most.")] = None,
    latency_target: Annotated[
        float | None, typer.Option(parser=duration, metavar="DURATION", help="The p95 latency to hold, for example 20ms.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="When it must be done, or ready: an instant, or 10m from now.")] = None,
    firm: Annotated[bool, typer.Option("--firm", help="Stop at the deadline, rather than finish late.")] = False,
    accelerator: Annotated[str | None, typer.Option(help="An accelerator class, or auto.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="The largest batch that is given to the model.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first.")] = None,
    dry_run: Annotated[DryRun, typer.Option(help="client prints what would be sent, server lets the API server check it.")] = (
        DryRun.NONE
    ),
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end of a batch, or until a service is ready.")] = False,
    timeout: Annotated[float, waiting("10m")] = 600.0,
    output: Form = Output.TABLE,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Create a job from a file or from flags.

    With --wait it prints the result, or the cause of the failure. It makes a service unless --input or --data makes it a batch.
    """
    if (filename is None) == (name is None):
        raise typer.BadParameter("give a NAME with --model, or a file by -f")
    if filename is not None:
        found = manifests.from_text(manifests.read(filename), filename)
    else:
        given = data if data is None or not data.startswith("@") else manifests.read(data[1:])
        fields = {
            "model": model,
            "modelVersion": model_version,
            "modelDigest": model_digest,
            "accelerator": accelerator,
            "deadline": None if deadline is None else manifests.deadline(deadline, now()),
            "deadlinePolicy": "Firm" if firm else None,
            "priority": priority,
            "batchSize": batch_size,
            "input.uri": input_,
            "input.data": given,
            "input.items": items,
            "input.storage.secretRef.name": input_secret,
            "output.uri": output_uri,
            "output.storage.secretRef.name": output_secret,
            "serve.minReplicas": min_replicas,
            "serve.maxReplicas": max_replicas,
            "serve.latencyTargetMilliseconds": None if latency_target is None else max(1, round(latency_target * 1000)),
        }
        if model is None:
            raise typer.BadParameter("a job needs --model")
        found = [manifests.job(str(name), fields)]
    if dry_run is DryRun.CLIENT:
        for one in found:
            draw.document(one, Output.JSON if output is Output.JSON else Output.YAML)
        return
    with connected(kubeconfig, context, namespace) as client:
        made = [_create(client, one, dry_run=dry_run is DryRun.SERVER, output=output) for one in found]
        if wait and dry_run is DryRun.NONE:
            codes = [finish(client, job.metadata.name, job.metadata.namespace, timeout) for job in made if job is not None]
            raise typer.Exit(max(codes, default=Exit.OK))


def _create(client: Client, manifest: Raw, *, dry_run: bool, output: Output) -> InferenceJob | None:
    """The job that was created; none for a model."""
    is_job = manifest["kind"] == "InferenceJob"
    where = manifest.get("metadata", {}).get("namespace") or client.namespace
    made = client.transport.send(calls.create(calls.JOBS if is_job else calls.MODELS, where, manifest, dry_run=dry_run))
    name = f"{KIND if is_job else 'inferencemodel.inference.myorg'}/{made['metadata']['name']}"
    if output in {Output.JSON, Output.YAML}:
        draw.document(made, output)
    else:
        draw.lines([name if output is Output.NAME else f"{name} created{' (server dry run)' if dry_run else ''}"])
    return decode(made, InferenceJob) if is_job else None
