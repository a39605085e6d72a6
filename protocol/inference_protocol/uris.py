"""Locations that a job may name: `pvc://claim/path`, `http(s)://host/path`, `file:///path` in the worker's image.

Models and the inputs of batches may also be at `s3://bucket/key`, `gs://bucket/key` and `hf://org/repo@revision/path`, models at
`oci://registry/repo:tag#file`, and outputs at `s3://bucket/folder` and `gs://bucket/folder`.

Parsing is pure. Whether a path leaves its volume through a symbolic link, or a host name resolves to a forbidden address,
only the worker can see; it checks again there.
"""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
# Metadata services outside the link-local range, by cloud: Alibaba, Azure, Oracle, Google, AWS.
_METADATA = frozenset({"100.100.100.200", "168.63.129.16", "192.0.0.192", "fd20:ce::254", "fd00:ec2::254", "fd00:ec2::23"})
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_BUCKET = re.compile(r"[a-z0-9][-a-z0-9.]{1,61}[a-z0-9]")
# Google's may have underscores, and more letters where there are dots.
_GS_BUCKET = re.compile(r"[a-z0-9][-_a-z0-9.]{1,220}[a-z0-9]")
_HUB_NAME = re.compile(r"[A-Za-z0-9][-\w.]{0,95}", re.ASCII)
_COMPONENT = r"[a-z0-9]+(?:(?:[.]|_{1,2}|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(
    rf"(?P<name>{_COMPONENT}(?:/{_COMPONENT})*)(?::(?P<tag>\w[-\w.]{{0,127}})|@(?P<digest>sha256:[0-9a-f]{{64}}))?", re.ASCII
)
SCHEMES = ("pvc", "s3", "gs", "hf", "oci", "https", "http", "file")


class UriError(ValueError):
    """The text is no location that this project reads or writes; the message says why and what would be."""


@dataclass(frozen=True, slots=True)
class PvcUri:
    """A path inside a PersistentVolumeClaim of the job's own namespace; `path` is relative and never climbs."""

    claim: str
    path: PurePosixPath


@dataclass(frozen=True, slots=True)
class HttpUri:
    """An address that is fetched once and checked against a sha256 digest."""

    url: str
    host: str


@dataclass(frozen=True, slots=True)
class FileUri:
    """An absolute path inside the worker's image."""

    path: PurePosixPath


@dataclass(frozen=True, slots=True)
class S3Uri:
    """An object by its bucket and key. Where the store is stands elsewhere, so that one manifest fits several."""

    bucket: str
    key: str


@dataclass(frozen=True, slots=True)
class GsUri:
    """An object of Google's Cloud Storage by its bucket and key."""

    bucket: str
    key: str


@dataclass(frozen=True, slots=True)
class HubUri:
    """A file of a model hub's repository (`ORG/REPO`) at a branch, tag or commit."""

    repository: str
    revision: str
    path: str


@dataclass(frozen=True, slots=True)
class OciUri:
    """A layer of an OCI artifact: the one with the title `path`, or the only one where `path` is empty.

    `host` is the name in `registry`, which may have a port; `reference` is a tag or a digest.
    """

    registry: str
    host: str
    repository: str
    reference: str
    path: str


BucketUri = S3Uri | GsUri
StoreUri = BucketUri | HubUri | OciUri
RemoteUri = HttpUri | StoreUri
Uri = PvcUri | FileUri | RemoteUri


def is_uri(text: str) -> bool:
    """Tell a location from an InferenceModel's name (names hold no colon)."""
    return "://" in text


def parse_uri(text: str) -> Uri:
    """Parse a location; raise UriError with the rule that it breaks."""
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise UriError("a URI must not hold control characters")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise UriError(f"{text!r}: {error}") from error
    match parts.scheme:
        case "pvc":
            return _pvc(text)
        case "http" | "https":
            return _http(text)
        case "s3":
            return S3Uri(*_object(text, "s3", _BUCKET, "endpoint and region"))
        case "gs":
            return GsUri(*_object(text, "gs", _GS_BUCKET, "the endpoint"))
        case "hf":
            return _hub(text)
        case "oci":
            return _oci(text)
        case "file":
            if parts.netloc:
                raise UriError(f"{text!r}: a file URI names no host; write file:///absolute/path")
            return FileUri(PurePosixPath("/") / _relative(text, parts.path))
        case scheme:
            known = ", ".join(f"{s}://" for s in SCHEMES)
            raise UriError(f"{text!r}: scheme {scheme or 'missing'!r} is not supported; use one of {known}")


def _pvc(text: str) -> PvcUri:
    claim, _, path = text.removeprefix("pvc://").partition("/")
    if not _CLAIM.fullmatch(claim):
        raise UriError(f"{text!r}: {claim!r} is no valid claim name; write pvc://CLAIM/PATH")
    return PvcUri(claim, _relative(text, path))


def _relative(text: str, path: str) -> PurePosixPath:
    plain = unquote(path)
    if "\\" in plain or "\0" in plain:
        raise UriError(f"{text!r}: backslashes are not allowed in a path")
    segments = [s for s in plain.split("/") if s not in ("", ".")]
    if ".." in segments:
        raise UriError(f"{text!r}: '..' would leave the volume; name the path from the volume's root")
    return PurePosixPath(*segments)


def _object(text: str, scheme: str, names: re.Pattern[str], elsewhere: str) -> tuple[str, str]:
    """The bucket and the key. `elsewhere` is what people try to write into the URI, and what belongs into the Secret."""
    bucket, _, key = text.removeprefix(f"{scheme}://").partition("/")
    form = f"{scheme}://BUCKET/KEY"
    if not names.fullmatch(bucket):
        raise UriError(f"{text!r}: {bucket!r} is no bucket's name; write {form}")
    # Many write a folder with its slash.
    return bucket, _key(text, key.removesuffix("/"), f"{form}, and {elsewhere} into the Secret of storage.secretRef")


def _hub(text: str) -> HubUri:
    form = "hf://ORG/REPO@REVISION/PATH, with %2F for a slash in REVISION"
    organisation, _, rest = text.removeprefix("hf://").partition("/")
    named, _, path = rest.partition("/")
    name, at, revision = named.partition("@")
    if not (_HUB_NAME.fullmatch(organisation) and _HUB_NAME.fullmatch(name)) or (at and not revision):
        raise UriError(f"{text!r} names no repository; write {form}")
    return HubUri(f"{organisation}/{name}", _key(text, revision, form) if at else "main", _key(text, path, form))


def _oci(text: str) -> OciUri:
    form = "oci://REGISTRY/REPO:TAG or oci://REGISTRY/REPO@sha256:HEX, and #FILE behind it where the artifact has several"
    place, sharp, path = text.removeprefix("oci://").partition("#")
    registry, _, rest = place.partition("/")
    found = _REPOSITORY.fullmatch(rest)
    if found is None:
        raise UriError(f"{text!r} names no repository; write {form}")
    host = _http(f"https://{registry}").host
    return OciUri(
        registry, host, found["name"], found["digest"] or found["tag"] or "latest", _key(text, path, form) if sharp else ""
    )


def _key(text: str, written: str, form: str) -> str:
    """The name of an object, percent-decoded. Nothing in it is left out: a store takes each letter as it is."""
    plain = unquote(written)
    if "?" in written or "#" in written or "\\" in plain or any(part in ("", ".", "..") for part in plain.split("/")):
        raise UriError(f"{text!r}: {written!r} is no name of a file there; write {form}")
    if any(ord(c) < 32 or ord(c) == 127 for c in plain):
        raise UriError("a URI must not hold control characters")
    return plain


def _http(text: str) -> HttpUri:
    parts = urlsplit(text)
    try:
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UriError(f"{text!r}: {error}") from error
    if not host:
        raise UriError(f"{text!r}: the URL names no host")
    if parts.username or parts.password:
        raise UriError("a URL must not carry credentials: they would stand in the job for all to read")
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        return HttpUri(text, host)
    if reason := forbidden_address(literal):
        raise UriError(f"{text!r}: {reason}")
    return HttpUri(text, host)


def forbidden_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str | None:
    """Say why a worker never connects to this address; None where it may.

    Link-local holds the cloud's metadata service (169.254.169.254, fe80::/10), which hands out the node's credentials.
    """
    if (inside := _embedded(address)) is not None:
        return forbidden_address(inside)
    if address.is_link_local or str(address) in _METADATA:
        return f"{address} is link-local (the node's metadata service lives there) and is never fetched"
    if address.is_loopback or address.is_unspecified or address.is_multicast or address.is_reserved:
        return f"{address} is not an address that a worker may fetch from"
    return None


def _embedded(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that packets to an IPv6 one end at: mapped, 6to4, Teredo, or by the gateway of NAT64 (RFC 6052)."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo is not None else None)
