"""Objects of Google's Cloud Storage: read by their paths, written and listed by its JSON API, each write for one generation.

A service account's key signs a token for an hour (RFC 7519), which is sent as it is: no other server is asked for one. The
instance's metadata is never asked for credentials: those are the node's.
"""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPMessage
from urllib.parse import quote, urlencode

import msgspec

from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import GsUri
from inference_worker.download import Place
from inference_worker.errors import WorkerError
from inference_worker.stores.calls import PAGE_LIMIT_BYTES, READ, REMOVED, Found, Page, Request, first_bytes
from inference_worker.stores.keys import Keys, denied, endpoint

_KEY = "GOOGLE_APPLICATION_CREDENTIALS"
_ENDPOINT_KEY = "GCS_ENDPOINT_URL"
_SERVER = "https://storage.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_TOKEN_SECONDS = 3600
# A clock that is ahead of Google's would sign for the future.
_SKEW_SECONDS = 60
_SAFE = "-._~"
_ABSENT = "0"
_CURE = f"check {_KEY} of the Secret, and that its account may storage.objects.get"
_BUCKET_CURE = (
    f"check {_ENDPOINT_KEY} and {_KEY} of the Secret, and that its account may storage.objects.get, storage.objects.create, "
    "storage.objects.delete and storage.objects.list (roles/storage.objectUser)"
)


class _Account(msgspec.Struct, frozen=True):
    """What a service account's key has that a token needs."""

    type: str
    client_email: str
    private_key: str
    private_key_id: str = ""


class _Object(msgspec.Struct, frozen=True):
    name: str = ""
    generation: str = ""
    size: str = ""


class _Listing(msgspec.Struct, frozen=True, rename="camel"):
    items: list[_Object] = []
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """See calls.Dialect. A mark is an object's generation, which each write replaces; nobody asks where `token` is empty."""

    server: str
    bucket: str
    authorities: str = field(repr=False)
    token: str = field(default="", repr=False)
    cure: str = _BUCKET_CURE
    endpoint_key: str = _ENDPOINT_KEY
    # The generations of objects are microseconds since 1970.
    strange_mark: str = "1"

    def proof(self, request: Request) -> Mapping[str, str]:
        """See calls.Dialect."""
        return self._authorize(request.url, request.headers)

    def read(self, key: str, told: str, limit: int) -> Request:
        """See calls.Dialect."""
        return Request("GET", self._path(key), told, READ, first_bytes(limit), limit=limit)

    def write(self, key: str, told: str, data: bytes, mark: str) -> Request:
        """See calls.Dialect. Generation 0 is that of an object that isn't there."""
        asked = {"uploadType": "media", "name": key, "ifGenerationMatch": mark or _ABSENT}
        headers = {"Content-Type": "application/octet-stream"}
        return Request("POST", f"{self.server}/upload{self._objects}?{_query(asked)}", told, (200, 412), headers, data)

    def removal(self, key: str, told: str) -> Request:
        """See calls.Dialect."""
        return Request("DELETE", f"{self.server}{self._objects}/{quote(key, safe=_SAFE)}", told, REMOVED)

    def listing(self, prefix: str, told: str, token: str) -> Request:
        """See calls.Dialect."""
        fields = "nextPageToken,items(name,generation,size)"
        asked = {"prefix": prefix, "delimiter": "/", "fields": fields, **({"pageToken": token} if token else {})}
        return Request("GET", f"{self.server}{self._objects}?{_query(asked)}", told, READ, limit=PAGE_LIMIT_BYTES)

    def mark(self, headers: HTTPMessage, data: bytes) -> str:
        """See calls.Dialect. What was read has it in a header, what was written in the object's description."""
        given = headers.get("x-goog-generation")
        if given is None:
            try:
                given = msgspec.json.decode(data, type=_Object).generation
            except (msgspec.DecodeError, msgspec.ValidationError):
                given = ""
        return given if given.isascii() and given.isdecimal() else ""

    def page(self, data: bytes) -> Page:
        """See calls.Dialect. Raises WorkerError."""
        try:
            listed = msgspec.json.decode(data, type=_Listing)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            told = f"gs://{self.bucket}: the answer is no list of objects; is {self.endpoint_key} a server of Cloud Storage?"
            raise WorkerError(WorkerReason.MODEL_UNREACHABLE, told) from error
        return Page([Found(each.name, each.generation, _number(each.size)) for each in listed.items], listed.next_page_token)

    def place(self, key: str, told: str, mark: str = "") -> Place:
        """See calls.Dialect."""
        url = self._path(key)
        return Place(
            f"{url}?{_query({'generation': mark})}" if mark else url,
            told,
            self._authorize,
            self.authorities,
            follows=False,
            denied=WorkerReason.MODEL_ACCESS_DENIED,
            cure=_CURE,
            pinned=bool(mark),
        )

    @property
    def _objects(self) -> str:
        return f"/storage/v1/b/{quote(self.bucket, safe=_SAFE)}/o"

    def _path(self, key: str) -> str:
        return f"{self.server}/{self.bucket}/{quote(key, safe=f'/{_SAFE}')}"

    def _authorize(self, _url: str, _headers: Mapping[str, str]) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def access(uri: GsUri, keys: Keys) -> Access:
    """How a bucket is asked. Raises WorkerError MODEL_ACCESS_DENIED for a key that can't be used, URI_FORBIDDEN for no URL."""
    server = endpoint(_ENDPOINT_KEY, keys.get(_ENDPOINT_KEY) or _SERVER)
    told = keys.get(_KEY)
    if told and not server.startswith("https://"):
        raise denied(f"what {_KEY} signs is sent over https alone, and {_ENDPOINT_KEY} isn't https")
    return Access(server, uri.bucket, keys.authorities, _token(_account(told), time.time()) if told else "")


def place(uri: GsUri, told: str, keys: Keys) -> Place:
    """Where the store has the object. Raises WorkerError as access does."""
    return access(uri, keys).place(uri.key, told)


def _account(text: str) -> _Account:
    try:
        account = msgspec.json.decode(text, type=_Account)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise denied(f"{_KEY} holds no key of a service account; it is the key's JSON, not a path") from error
    if account.type != "service_account":
        raise denied(f"{_KEY} is of type {account.type!r}, and workers use keys of service_account alone")
    return account


def _token(account: _Account, now: float) -> str:
    """A token that Google's servers take as its account's word, for an hour."""
    # Only who asks as an account pays for the import.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(account.private_key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise denied(f"private_key of {_KEY} can't be read") from error
    if not isinstance(key, RSAPrivateKey):
        raise denied(f"private_key of {_KEY} is no RSA key")
    issued = int(now) - _SKEW_SECONDS
    head = {"alg": "RS256", "typ": "JWT", "kid": account.private_key_id}
    claims = {
        "iss": account.client_email,
        "sub": account.client_email,
        "scope": _SCOPE,
        "iat": issued,
        "exp": issued + _TOKEN_SECONDS,
    }
    signed = ".".join(_text(json.dumps(part, separators=(",", ":")).encode()) for part in (head, claims))
    return f"{signed}.{_text(key.sign(signed.encode(), PKCS1v15(), hashes.SHA256()))}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _query(asked: Mapping[str, str]) -> str:
    return urlencode(sorted(asked.items()), quote_via=quote, safe=_SAFE)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
