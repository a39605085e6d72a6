"""Files of a model hub, by the URL under which it resolves a revision. It redirects to where the bytes are."""

from collections.abc import Mapping
from urllib.parse import quote

from inference_protocol.messages import Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import HubUri
from inference_worker.download import Place
from inference_worker.stores.keys import Keys, denied, endpoint

_HUB = "https://huggingface.co"
_CURE = "is the repository gated or private, or misspelt? Name a Secret with HF_TOKEN in storage.secretRef"


def place(uri: HubUri, told: str, storage: Storage, keys: Keys) -> Place:
    """Where the hub has the file. Raises WorkerError MODEL_ACCESS_DENIED for a token that would be sent in the clear."""
    base = endpoint("HF_ENDPOINT", keys.get("HF_ENDPOINT") or storage.hub_endpoint or _HUB)
    token = keys.get("HF_TOKEN")
    if token and not base.startswith("https://"):
        raise denied("HF_TOKEN is sent over https alone, and HF_ENDPOINT isn't https")

    def authorize(_url: str, _headers: Mapping[str, str]) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {token}"} if token else {}

    url = f"{base}/{uri.repository}/resolve/{quote(uri.revision, safe='')}/{quote(uri.path)}"
    return Place(url, told, authorize, keys.authorities, denied=WorkerReason.MODEL_ACCESS_DENIED, cure=_CURE)
