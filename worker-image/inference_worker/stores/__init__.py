"""Where people have their models: object stores, model hubs, OCI registries. Each is a plan of GETs; `download` carries it out."""

from inference_protocol.messages import Storage
from inference_protocol.uris import HubUri, OciUri, S3Uri, StoreUri
from inference_worker.download import Bounds, download
from inference_worker.stores import hub, registry, s3
from inference_worker.stores.keys import Keys


def fetched(uri: StoreUri, told: str, storage: Storage, bounds: Bounds) -> tuple[bytes, str]:
    """The file's bytes and its `sha256:HEX`. Raises StoppedError, and WorkerError as fetch.read_verified does."""
    keys = Keys.of(uri, storage.secret)
    match uri:
        case S3Uri():
            return download(s3.place(uri, told, storage, keys, bounds), bounds)
        case HubUri():
            return download(hub.place(uri, told, storage, keys), bounds)
        case OciUri():
            return registry.fetched(uri, told, keys, bounds)
