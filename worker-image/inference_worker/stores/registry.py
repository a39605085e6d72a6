"""Files of OCI artifacts, as ORAS pushes them: a manifest that names layers by digest, each with its file's name as title."""

import base64
import binascii
import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated
from urllib.parse import urlencode

import msgspec

from inference_protocol.reasons import WorkerReason
from inference_protocol.storage import DOCKER_KEY
from inference_protocol.uris import OciUri
from inference_worker.download import Place, Sink, download_into
from inference_worker.errors import WorkerError
from inference_worker.exchange import Bounds, answered, small_body, status_words
from inference_worker.stores.keys import Keys, denied

_MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
_MANIFEST_LIMIT_BYTES = 4 << 20
_TOKEN_LIMIT_BYTES = 256 << 10
# No token is worth less (the registry's specification of tokens).
_TOKEN_SECONDS = 60.0
_TITLE = "org.opencontainers.image.title"
_PARAMETER = re.compile(r'([a-zA-Z_]+)="([^"\\]{0,2048})"')
_CURE = "name a Secret of type kubernetes.io/dockerconfigjson for this registry in storage.secretRef"


class _Layer(msgspec.Struct, frozen=True):
    digest: Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")]
    size: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    annotations: dict[str, str] = {}


class _Manifest(msgspec.Struct, frozen=True):
    layers: Annotated[tuple[_Layer, ...], msgspec.Meta(min_length=1, max_length=4096)]


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


class _Login(msgspec.Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""


class _DockerConfig(msgspec.Struct, frozen=True):
    auths: dict[str, _Login] = {}


@dataclass(frozen=True, slots=True)
class _Registry:
    """A registry as it is asked for one repository; `authorization` is what answered its `challenge` at the instant `since`."""

    uri: OciUri
    told: str
    keys: Keys
    bounds: Bounds
    authorization: str = field(default="", repr=False)
    challenge: str = ""
    since: float = 0.0

    @property
    def base(self) -> str:
        return f"https://{self.uri.registry}/v2/{self.uri.repository}"

    def authorize(self, _url: str, _headers: Mapping[str, str]) -> Mapping[str, str]:
        if not self.authorization:
            return {}
        # A large layer that breaks off goes on long after the token's end.
        old = time.monotonic() - self.since > _TOKEN_SECONDS / 2
        return {"Authorization": _answer(self, self.challenge) if old else self.authorization}

    def place(self, url: str) -> Place:
        return Place(url, self.told, self.authorize, self.keys.authorities, denied=WorkerReason.MODEL_ACCESS_DENIED, cure=_CURE)


def fetch_into(file: Sink, uri: OciUri, told: str, keys: Keys, bounds: Bounds) -> str:
    """Write the layer into a file, and return its `sha256:HEX`. Raises StoppedError, WorkerError."""
    registry, manifest = _manifest(_Registry(uri, told, keys, bounds))
    layer = _layer(uri, told, manifest, bounds)
    if layer.size > bounds.limit:
        raise WorkerError(bounds.large, f"{told} has {layer.size} bytes, more than the limit of {bounds.limit}")
    # Not a byte more than the manifest promises.
    digest = download_into(file, registry.place(f"{registry.base}/blobs/{layer.digest}"), replace(bounds, limit=layer.size))
    if digest != layer.digest:
        raise WorkerError(
            WorkerReason.MODEL_CORRUPT, f"{told}: the registry's bytes aren't those that its manifest names; push it anew"
        )
    return digest


def _manifest(registry: _Registry) -> tuple[_Registry, bytes]:
    """The manifest's bytes, and the registry with what it let us in by. Its challenge is answered once."""
    url = f"{registry.base}/manifests/{registry.uri.reference}"
    for attempt in range(2):
        headers = {"Accept": _MANIFESTS, **registry.authorize(url, {})}
        asked = answered(url, headers, told=registry.told, authorities=registry.keys.authorities, bounds=registry.bounds)
        with asked as (response, pace):
            if response.status == 401 and attempt == 0:
                challenge = response.getheader("WWW-Authenticate", "")
            else:
                _require_found(registry, response.status)
                data = small_body(response, pace, registry.told, limit=_MANIFEST_LIMIT_BYTES)
                _require_pinned(registry, data)
                return registry, data
        since = time.monotonic()
        registry = replace(registry, authorization=_answer(registry, challenge), challenge=challenge, since=since)
    raise AssertionError("the second answer returns or raises")


def _require_found(registry: _Registry, status: int) -> None:
    if status == 404:
        raise WorkerError(registry.bounds.missing, f"{registry.told} does not exist (HTTP 404)")
    if status != 200:
        reason = WorkerReason.MODEL_ACCESS_DENIED if status in (401, 403) else WorkerReason.MODEL_UNREACHABLE
        raise WorkerError(reason, f"{registry.told} answered HTTP {status_words(status)}; {_CURE}")


def _require_pinned(registry: _Registry, data: bytes) -> None:
    reference = registry.uri.reference
    if reference.startswith("sha256:") and hashlib.sha256(data).hexdigest() != reference.removeprefix("sha256:"):
        raise WorkerError(WorkerReason.MODEL_CORRUPT, f"{registry.told}: the registry gave another manifest than this digest's")


def _layer(uri: OciUri, told: str, manifest: bytes, bounds: Bounds) -> _Layer:
    """The layer that a location means. Raises WorkerError."""
    try:
        layers = msgspec.json.decode(manifest, type=_Manifest).layers
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        text = f"{told} is no artifact with layers; push the file with oras push, and name no index of several platforms"
        raise WorkerError(bounds.missing, text) from error
    found = [layer for layer in layers if not uri.path or layer.annotations.get(_TITLE) == uri.path]
    if len(found) == 1:
        return found[0]
    if found:
        raise WorkerError(bounds.missing, f"{told} has {len(found)} files; name one behind the reference: #FILE")
    # The artifact's author need not be the job's: of what else is in it no more is told than how much.
    raise WorkerError(bounds.missing, f"{told}: none of the {len(layers)} layers has this title; oras push gives a file its name")


def _answer(registry: _Registry, challenge: str) -> str:
    """The Authorization that a registry's challenge asks for. Raises WorkerError."""
    login = _login(registry)
    scheme, _, rest = challenge.partition(" ")
    if scheme.lower() == "basic" and login:
        return f"Basic {login}"
    given = dict(_PARAMETER.findall(rest))
    realm = given.get("realm", "")
    if scheme.lower() != "bearer" or not realm:
        raise denied(f"{registry.told} wants to know who asks, and nothing is known for {registry.uri.registry}")
    if not realm.startswith("https://"):
        raise denied(f"{registry.told} has its tokens from a server without TLS, to which no password is sent")
    asked = {"service": given.get("service", ""), "scope": f"repository:{registry.uri.repository}:pull"}
    url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(asked)}"
    return f"Bearer {_token(registry, url, login)}"


def _token(registry: _Registry, url: str, login: str) -> str:
    told = f"{registry.told} (its token)"
    headers = {"Authorization": f"Basic {login}"} if login else {}
    asked = answered(url, headers, told=told, authorities=registry.keys.authorities, bounds=registry.bounds)
    with asked as (response, pace):
        if response.status != 200:
            reason = WorkerReason.MODEL_ACCESS_DENIED if response.status in (401, 403) else WorkerReason.MODEL_UNREACHABLE
            raise WorkerError(reason, f"{told}: HTTP {status_words(response.status)}; {_CURE}")
        data = small_body(response, pace, told, limit=_TOKEN_LIMIT_BYTES)
    try:
        found = msgspec.json.decode(data, type=_Token)
    except (msgspec.DecodeError, msgspec.ValidationError):
        found = _Token()
    token = found.token or found.access_token
    if not token or not token.isascii() or not token.isprintable():
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told}: the answer has none")
    return token


def _login(registry: _Registry) -> str:
    """What the Secret has for this registry alone, as Basic authentication writes it; empty where it has nothing."""
    text = registry.keys.get(DOCKER_KEY)
    if not text:
        return ""
    try:
        config = msgspec.json.decode(text, type=_DockerConfig)
        login = next((login for name, login in config.auths.items() if _registry_of(name) == registry.uri.registry.lower()), None)
        if login is None:
            return ""
        plain = f"{login.username}:{login.password}".encode() if login.username else base64.b64decode(login.auth, validate=True)
        return base64.b64encode(plain).decode()
    except (msgspec.DecodeError, msgspec.ValidationError, binascii.Error) as error:
        raise denied(f"{DOCKER_KEY} of Secret {registry.keys.secret} can't be read") from error


def _registry_of(name: str) -> str:
    """The host and port that an entry of a Docker configuration is for: some write it as a URL."""
    return name.lower().removeprefix("https://").removeprefix("http://").partition("/")[0]
