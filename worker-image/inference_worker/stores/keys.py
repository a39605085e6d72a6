"""What a Secret says of a store: read anew for each file, since the kubelet renews what is mounted."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inference_protocol.messages import IDENTITY_ROOT, Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.storage import CA_KEY, KEY_LIMIT_BYTES, endpoint_fault, keys_of
from inference_protocol.uris import StoreUri
from inference_worker.errors import WorkerError


@dataclass(frozen=True, slots=True)
class Keys:
    """The values that a Secret has, by key; `secret` is its name, or empty."""

    secret: str
    values: Mapping[str, str] = field(repr=False)

    @staticmethod
    def of(uri: StoreUri, storage: Storage) -> "Keys":
        """What is mounted for a location. Raises WorkerError MODEL_ACCESS_DENIED for a Secret that has nothing of use."""
        if not storage.secret:
            return Keys("", {})
        wanted = keys_of(uri)
        found = {key: text for key in wanted if (text := read_file(f"{storage.folder}/{key}")) is not None}
        if not found:
            raise denied(f"there is no Secret {storage.secret} with any of {', '.join(wanted)}")
        return Keys(storage.secret, found)

    def get(self, key: str) -> str:
        """A value without the line's end that a file often has; empty where there is none."""
        return self.values.get(key, "").strip()

    def require(self, *keys: str) -> tuple[str, ...]:
        """Values that go together. Raises WorkerError MODEL_ACCESS_DENIED unless each is there."""
        if lacking := [key for key in keys if not self.get(key)]:
            raise denied(f"Secret {self.secret} lacks {' and '.join(lacking)}")
        return tuple(map(self.get, keys))

    @property
    def authorities(self) -> str:
        """CAs (PEM) that are trusted beside the system's."""
        return "\n".join(filter(None, (self.get(CA_KEY), self.get("AWS_CA_BUNDLE"))))


def denied(text: str) -> WorkerError:
    """What can't be asked for as things stand."""
    return WorkerError(WorkerReason.MODEL_ACCESS_DENIED, f"{text}; correct the Secret that storage.secretRef names")


def read_file(name: str) -> str | None:
    """A file below the identity's folder; None where there is none. Raises WorkerError MODEL_ACCESS_DENIED."""
    path = Path(os.environ.get("INFERENCE_IDENTITY_ROOT", IDENTITY_ROOT)) / name
    try:
        with path.open("rb") as file:
            data = file.read(KEY_LIMIT_BYTES + 1)
        if len(data) > KEY_LIMIT_BYTES:
            raise denied(f"{path.name} has more than {KEY_LIMIT_BYTES} bytes")
        return data.decode("ascii")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise denied(f"{path.name} can't be read ({type(error).__name__})") from error


def endpoint(key: str, text: str) -> str:
    """The URL of a store's server, without its last slash. Raises WorkerError URI_FORBIDDEN."""
    if (why := endpoint_fault(text)) is not None:
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{key}: {why}")
    return text.rstrip("/")
