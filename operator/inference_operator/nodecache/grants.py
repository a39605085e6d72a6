"""What a new worker is told of its node's cache: where it is, and the token for its own model."""

from typing import Any

import msgspec

from inference_operator.settings import NodeCache
from inference_protocol.messages import CONFIG_VARIABLE, WorkerConfig, encode
from inference_protocol.node_cache import GRANT_VARIABLE, PORT, Grant, token
from inference_protocol.uris import RemoteUri, UriError, parse_uri

Manifest = dict[str, Any]


def granted(pod: Manifest, key: bytes, settings: NodeCache) -> Manifest:
    """Return a worker's pod with its grant; as it is where its model is on a volume, or of no known digest.

    Templates don't know of it: workers go on as they are when the cache, or its key, comes or goes.
    """
    container, *others = pod["spec"]["containers"]
    told = next(each["value"] for each in container["env"] if each["name"] == CONFIG_VARIABLE)
    source = msgspec.json.decode(told, type=WorkerConfig).model
    if source.digest is None or not _is_remote(source.uri):
        return pod
    url = f"http://{settings.service}.{settings.namespace}.svc:{PORT}"
    grant = Grant(url, token(key, pod["metadata"]["namespace"], source.digest))
    env = [*container["env"], {"name": GRANT_VARIABLE, "value": encode(grant).decode()}]
    return {**pod, "spec": {**pod["spec"], "containers": [{**container, "env": env}, *others]}}


def _is_remote(uri: str) -> bool:
    try:
        return isinstance(parse_uri(uri), RemoteUri)
    except UriError:
        return False
