"""From a location to a path that is really inside its volume."""

from pathlib import Path
from urllib.parse import quote, urlsplit

from inference_protocol.messages import VOLUME_ROOT
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import FileUri, PvcUri, Uri, UriError, parse_uri
from inference_worker.errors import WorkerError


def parse(text: str) -> Uri:
    """Parse a location; raise WorkerError(URI_FORBIDDEN) with the rule that it breaks."""
    try:
        return parse_uri(text)
    except UriError as error:
        raise WorkerError(WorkerReason.URI_FORBIDDEN, str(error)) from error


def beside(text: str, name: str) -> str:
    """The location of a file in the same directory: for an OCI artifact, of its layer with this title."""
    if text.startswith(("http://", "https://")):
        parts = urlsplit(text)
        return parts._replace(path=f"{parts.path.rpartition('/')[0]}/{quote(name)}", query="", fragment="").geturl()
    if text.startswith("oci://"):
        artifact, _, path = text.partition("#")
        return f"{artifact}#{'/'.join([*path.split('/')[:-1], quote(name)])}"
    return f"{text.rpartition('/')[0]}/{quote(name)}"


def local_path(uri: PvcUri | FileUri, *, root: Path = Path(VOLUME_ROOT)) -> Path:
    """The path on this machine, with every symbolic link followed.

    A link that points out of its volume would read or write what the job's author has no right to; so the resolved path decides,
    not the written one. Raises WorkerError(URI_FORBIDDEN).
    """
    if isinstance(uri, FileUri):
        return Path(uri.path)
    volume = (root / uri.claim).resolve()
    try:
        path = (volume / uri.path).resolve()
    except (OSError, RuntimeError) as error:
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"pvc://{uri.claim}/{uri.path} can't be followed: {error}") from error
    if not path.is_relative_to(volume):
        raise WorkerError(
            WorkerReason.URI_FORBIDDEN,
            f"pvc://{uri.claim}/{uri.path} is a link out of its volume; copy the data into the volume instead",
        )
    return path


def open_local(text: str, *, root: Path = Path(VOLUME_ROOT)) -> Path:
    """Like local_path, for a text that must not be a remote location."""
    uri = parse(text)
    if not isinstance(uri, PvcUri | FileUri):
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{text!r} can't be used here; use pvc://CLAIM/PATH")
    return local_path(uri, root=root)
