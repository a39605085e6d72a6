"""`push`: copy a model, or the input of a batch, to a claim or a bucket, and print what a manifest needs."""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from inference_client import volume_pod
from inference_client.client import Client
from inference_client.errors import ClientError, InvalidError
from inference_client.steps import worked
from kubectl_inference import bucket_writer, draw, helper_pod
from kubectl_inference.helper_pod import Place
from kubectl_inference.options import Context, Kubeconfig, Namespace, PageForm, PageOutput, connected, waiting

_LIFE_SECONDS = 3600
# What input.format goes by.
_INPUTS = (".npy", ".npz", ".jsonl", ".ndjson", ".csv")
Sent = Callable[[int], None]


def push(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="The file of a model or an input, and what belongs to it.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="CLAIM/PATH, or the URI of a bucket as fsspec knows it.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that is there. Jobs that pin its digest will refuse it.")
    ] = (False),
    image: Annotated[
        str, typer.Option(envvar="KUBECTL_INFERENCE_IMAGE", help="The helper pod's image: any with sh, head and sha256sum.")
    ] = volume_pod.DEFAULT_IMAGE,
    output: PageForm = PageOutput.PAGE,
    timeout: Annotated[float, waiting("10m")] = 600.0,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Copy a model, or a batch's input, to a claim or a bucket.

    It prints the digest, the URI, and the lines for an InferenceModel or an InferenceJob.
    """
    sources = [Path(one) for one in files]
    for one in sources:
        if not one.is_file():
            raise InvalidError(f"{one} is no file that can be read")
    bucket = "://" in target and not target.startswith("pvc://")
    with _bar(sum(one.stat().st_size for one in sources)) as sent:
        if bucket:
            uris = bucket_writer.push(sources, target, force=force, sent=sent)
        else:
            places = helper_pod.place(target, files)
            with connected(kubeconfig, context, namespace) as client:
                _to_claim(client, sources, places, image=image, force=force, timeout=timeout, sent=sent)
            uris = [one.uri for one in places]
    digest = model_digest(sources)
    found = {"uri": uris[0], "digest": digest, "files": uris}
    if output is not PageOutput.PAGE:
        draw.document(found, output)
        return
    draw.lines((f"digest: {digest}", f"uri: {uris[0]}", "", *manifest_lines(uris[0], digest)))


def manifest_lines(uri: str, digest: str) -> tuple[str, ...]:
    """Where the file belongs in a manifest: in a job, if its ending is one of an input, else in a model."""
    where = (f"  uri: {uri}", f"  digest: {digest}")
    if uri.removesuffix(".gz").endswith(_INPUTS):
        return ("# in spec of an InferenceJob", "input:", *where)
    return ("# in spec.versions of an InferenceModel", '- name: "1"', *where)


def sha256(path: Path) -> str:
    """The digest of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_digest(files: list[Path]) -> str:
    """The digest that an InferenceModel pins: of the only file, else of all of them by name; signatures don't count."""
    counted = sorted((one for one in files if one.suffix != ".sig"), key=lambda one: one.name)
    if len(counted) == 1:
        return f"sha256:{sha256(counted[0])}"
    # What `sha256sum FILE... | sha256sum` prints, by which the worker checks a model with weights beside it.
    listing = "".join(f"{sha256(one)}  {one.name}\n" for one in counted)
    return f"sha256:{hashlib.sha256(listing.encode()).hexdigest()}"


def _to_claim(
    client: Client, sources: list[Path], places: tuple[Place, ...], *, image: str, force: bool, timeout: float, sent: Sent
) -> None:
    from kubectl_inference import pod_streams

    claim, namespace = places[0].claim, client.namespace

    def write(pod: str) -> None:
        def run(command: list[str]) -> str:
            return pod_streams.run_in_pod(client, namespace, pod, command, timeout=timeout)

        for source, place in zip(sources, places, strict=True):
            if not force and run(helper_pod.existing(place)).strip() == "yes":
                raise InvalidError(f"{place.uri} is there already: give a new version a name of its own, or replace it by --force")
            with source.open("rb") as file:
                command = helper_pod.writing(place, source.stat().st_size)
                pod_streams.run_in_pod(client, namespace, pod, command, stdin=file, timeout=timeout, on_sent=sent)
            # It begins with a backslash where the path has one.
            written, wanted = run(helper_pod.digesting(place)).partition(" ")[0].lstrip("\\"), sha256(source)
            if written != wanted:
                run(helper_pod.cleaning(place))
                raise ClientError(f"{place.uri} arrived with the digest sha256:{written}, not sha256:{wanted}: push it again")
            run(helper_pod.finishing(place))

    client.run(volume_pod.claimed(namespace, claim))
    name, give_up = volume_pod.new_name("push"), time.monotonic() + timeout
    made = volume_pod.manifest(name, claim, image, component="push", life_seconds=_LIFE_SECONDS, read_only=False)
    client.run(volume_pod.with_pod(namespace, made, give_up, time.monotonic, lambda pod: worked(lambda: write(pod))))


@contextmanager
def _bar(size: int) -> Iterator[Sent]:
    console = draw.stderr()
    columns = (TextColumn("push"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("push", total=size)
        yield lambda count: bar.update(task, advance=count)
