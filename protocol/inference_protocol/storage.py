"""Keys of the Secrets that stores are asked with, and where a worker finds them."""

from urllib.parse import urlsplit

from inference_protocol.uris import GsUri, HubUri, OciUri, S3Uri, StoreUri, Uri

# Below IDENTITY_ROOT: a file for each key of a Secret (of a model, an input, an output), and the token by which a role is assumed.
STORAGE_FOLDER = "storage"
INPUT_STORAGE_FOLDER, OUTPUT_STORAGE_FOLDER = "input-storage", "output-storage"
ROLE_TOKEN_FILE = "storage/web-identity-token"  # noqa: S105
# For whom that token is.
ROLE_TOKEN_AUDIENCE = "sts.amazonaws.com"  # noqa: S105
CA_KEY = "ca.crt"
DOCKER_KEY = ".dockerconfigjson"
KEY_LIMIT_BYTES = 256 << 10

_KEYS: dict[type[StoreUri], tuple[str, ...]] = {
    S3Uri: (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ENDPOINT_URL",
        "AWS_REGION",
        "AWS_CA_BUNDLE",
        CA_KEY,
    ),
    GsUri: ("GOOGLE_APPLICATION_CREDENTIALS", "GCS_ENDPOINT_URL", CA_KEY),
    HubUri: ("HF_TOKEN", "HF_ENDPOINT", CA_KEY),
    OciUri: (DOCKER_KEY, CA_KEY),
}


def keys_of(uri: Uri) -> tuple[str, ...]:
    """The keys that a worker is shown for a location; none for one that needs no Secret."""
    return _KEYS[type(uri)] if isinstance(uri, StoreUri) else ()


def endpoint_fault(text: str) -> str | None:
    """What is wrong with the URL of a store's server; None for one that can be used."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment or parts.username)
    except ValueError:
        good = False
    return None if good else "it is no URL of a server; write https://HOST[:PORT]"
