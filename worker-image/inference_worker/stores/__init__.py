"""Where people have their models: object stores, model hubs, OCI registries. Each is a plan of GETs; `download` carries it out."""

from inference_protocol.messages import Storage
from inference_protocol.uris import BucketUri, GsUri, HubUri, OciUri, StoreUri
from inference_worker.download import Place, Sink, download_into
from inference_worker.exchange import Bounds
from inference_worker.stores import gcs, hub, registry, s3
from inference_worker.stores.keys import Keys


def fetch_into(file: Sink, uri: StoreUri, told: str, storage: Storage, bounds: Bounds) -> str:
    """Write what is there into a file, and return its `sha256:HEX`. Raises as fetch.fetch_into does."""
    if isinstance(uri, OciUri):
        return registry.fetch_into(file, uri, told, Keys.of(uri, storage), bounds)
    return download_into(file, place_of(uri, told, storage, bounds), bounds)


def place_of(uri: BucketUri | HubUri, told: str, storage: Storage, bounds: Bounds) -> Place:
    """Where a store has a file that one request fetches. Raises WorkerError."""
    keys = Keys.of(uri, storage)
    if isinstance(uri, GsUri):
        return gcs.place(uri, told, keys)
    return hub.place(uri, told, storage, keys) if isinstance(uri, HubUri) else s3.place(uri, told, storage, keys, bounds)
