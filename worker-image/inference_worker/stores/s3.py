"""Objects of S3 and of what speaks like it: signed requests (Signature Version 4), by keys or by a role that is assumed.

The instance's metadata is never asked for credentials: those are the node's.
"""

import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPMessage
from urllib.parse import quote, urlencode, urlsplit

from inference_protocol.messages import Storage
from inference_protocol.reasons import WorkerReason
from inference_protocol.storage import ROLE_TOKEN_FILE
from inference_protocol.uris import S3Uri
from inference_worker.download import Authorize, Place, no_authorization
from inference_worker.errors import WorkerError
from inference_worker.exchange import Bounds, answered, small_body, status_words
from inference_worker.stores.calls import PAGE_LIMIT_BYTES, READ, REMOVED, Found, Page, Request, element, first_bytes
from inference_worker.stores.keys import Keys, denied, endpoint, read_file

_REGION = "us-east-1"
_REGION_NAME = re.compile(r"[a-z0-9-]{1,64}", re.ASCII)
_ALGORITHM = "AWS4-HMAC-SHA256"
_NO_BODY = hashlib.sha256(b"").hexdigest()
_STS_LIMIT_BYTES = 64 << 10
_ELEMENTS = (b"AccessKeyId", b"SecretAccessKey", b"SessionToken")
_SAFE = "-._~"
_CURE = "check AWS_ENDPOINT_URL, AWS_REGION and the keys of the Secret, and that they may read the object (s3:GetObject)"
_BUCKET_CURE = (
    "check AWS_ENDPOINT_URL, AWS_REGION and the keys of the Secret, and that they may s3:GetObject, s3:PutObject, "
    "s3:DeleteObject and s3:ListBucket"
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What requests are signed by. `session` is empty for keys that don't expire."""

    key: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """See calls.Dialect. A mark is an ETag; nobody asks where `credentials` is None."""

    base: str
    region: str
    credentials: Credentials | None
    authorities: str = field(repr=False)
    cure: str = _BUCKET_CURE
    endpoint_key: str = "AWS_ENDPOINT_URL"
    strange_mark: str = '"00000000000000000000000000000000"'

    def proof(self, request: Request) -> Mapping[str, str]:
        """See calls.Dialect."""
        return self.signed(request.method, request.url, request.headers, hashlib.sha256(request.body or b"").hexdigest())

    def read(self, key: str, told: str, limit: int) -> Request:
        """See calls.Dialect."""
        return Request("GET", self.url(key), told, READ, first_bytes(limit), limit=limit)

    def write(self, key: str, told: str, data: bytes, mark: str) -> Request:
        """See calls.Dialect. An object that must have a mark, and is gone, is 404 as a bucket is that isn't there."""
        condition = {"If-Match": mark} if mark else {"If-None-Match": "*"}
        return Request("PUT", self.url(key), told, (200, 404, 412) if mark else (200, 412), condition, data)

    def removal(self, key: str, told: str) -> Request:
        """See calls.Dialect."""
        return Request("DELETE", self.url(key), told, REMOVED)

    def listing(self, prefix: str, told: str, token: str) -> Request:
        """See calls.Dialect."""
        asked = {"list-type": "2", "prefix": prefix, "delimiter": "/", **({"continuation-token": token} if token else {})}
        return Request("GET", self.url("", asked), told, READ, limit=PAGE_LIMIT_BYTES)

    def mark(self, headers: HTTPMessage, data: bytes) -> str:  # noqa: ARG002 -- S3 says it in a header
        """See calls.Dialect."""
        return str(headers.get("ETag", ""))

    def page(self, data: bytes) -> Page:
        """See calls.Dialect."""
        entries = re.findall(rb"<Contents>(.*?)</Contents>", data, re.DOTALL)
        return Page(list(map(_found, entries)), element("NextContinuationToken", data))

    def url(self, key: str, query: Mapping[str, str] | None = None) -> str:
        """That of an object, or of the bucket itself for an empty key."""
        asked = f"?{urlencode(sorted(query.items()), quote_via=quote, safe=_SAFE)}" if query else ""
        return f"{self.base}/{quote(key, safe=f'/{_SAFE}')}{asked}"

    def signed(self, method: str, url: str, headers: Mapping[str, str], payload: str = _NO_BODY) -> Mapping[str, str]:
        """The headers that prove who sends a request whose body has this sha256 (HEX)."""
        if self.credentials is None:
            return {}
        now = datetime.fromtimestamp(time.time(), UTC)
        return signed(url, headers, self.credentials, self.region, now, method=method, payload=payload)

    def place(self, key: str, told: str, mark: str = "") -> Place:
        """See calls.Dialect."""
        return Place(
            self.url(key),
            told,
            self._authorize if self.credentials is not None else no_authorization,
            self.authorities,
            # A signature is for one host: a redirect says that the region or the endpoint is wrong.
            follows=False,
            denied=WorkerReason.MODEL_ACCESS_DENIED,
            cure=_CURE,
            mark=mark,
        )

    @property
    def _authorize(self) -> Authorize:
        return lambda url, headers: self.signed("GET", url, headers)


def _found(entry: bytes) -> Found:
    size = element("Size", entry)
    return Found(element("Key", entry), element("ETag", entry), int(size) if size.isdecimal() and len(size) < 20 else 0)


def access(bucket: str, storage: Storage, keys: Keys, bounds: Bounds) -> Access:
    """How a bucket is asked. Raises WorkerError where credentials are incomplete or can't be had."""
    region = keys.get("AWS_REGION") or storage.s3_region or _REGION
    if not _REGION_NAME.fullmatch(region):
        raise denied("AWS_REGION is no region's name")
    given = keys.get("AWS_ENDPOINT_URL") or storage.s3_endpoint
    base = _base(bucket, endpoint("AWS_ENDPOINT_URL", given) if given else "", region)
    return Access(base, region, _credentials(storage, keys, region, bounds), keys.authorities)


def place(uri: S3Uri, told: str, storage: Storage, keys: Keys, bounds: Bounds) -> Place:
    """Where the store has the object. Raises WorkerError as access does."""
    return access(uri.bucket, storage, keys, bounds).place(uri.key, told)


def _base(bucket: str, server: str, region: str) -> str:
    if server:
        return f"{server}/{bucket}"
    if "." in bucket:
        # No certificate is for a name with more dots.
        return f"https://s3.{region}.amazonaws.com/{bucket}"
    return f"https://{bucket}.s3.{region}.amazonaws.com"


def signed(
    url: str,
    headers: Mapping[str, str],
    credentials: Credentials,
    region: str,
    now: datetime,
    *,
    method: str = "GET",
    payload: str = _NO_BODY,
) -> dict[str, str]:
    """The headers that sign a request with these headers. Its URL's query is sorted and encoded; `payload` is its body's sha256."""
    parts = urlsplit(url)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    own = {"x-amz-content-sha256": payload, "x-amz-date": stamp}
    if credentials.session:
        own["x-amz-security-token"] = credentials.session
    covered = {"host": parts.netloc, **{name.lower(): value for name, value in headers.items()}, **own}
    names = ";".join(sorted(covered))
    lines = "".join(f"{name}:{covered[name].strip()}\n" for name in sorted(covered))
    request = f"{method}\n{parts.path}\n{parts.query}\n{lines}\n{names}\n{payload}"
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    proof = f"{_ALGORITHM} Credential={credentials.key}/{scope},SignedHeaders={names},Signature={signature}"
    return {**own, "Authorization": proof}


def _credentials(storage: Storage, keys: Keys, region: str, bounds: Bounds) -> Credentials | None:
    """Those of a role, or of a Secret; None where nobody says who asks."""
    if storage.aws_role:
        return _assumed(storage.aws_role, keys, region, bounds)
    if not (keys.get("AWS_ACCESS_KEY_ID") or keys.get("AWS_SECRET_ACCESS_KEY")):
        return None
    key, secret = keys.require("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    return Credentials(key, secret, keys.get("AWS_SESSION_TOKEN"))


def _assumed(role: str, keys: Keys, region: str, bounds: Bounds) -> Credentials:
    """What the security token service gives for the worker's own token. Raises WorkerError."""
    token = read_file(ROLE_TOKEN_FILE)
    if token is None:
        raise WorkerError(
            WorkerReason.INTERNAL, f"the worker has no token to assume {role} with; run operator and worker of one release"
        )
    url = f"https://sts.{region}.amazonaws.com/"
    asked = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": role,
        "RoleSessionName": "inference-worker",
        "WebIdentityToken": token.strip(),
    }
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    form = urlencode(asked).encode()
    with answered(url, kind, told=url, authorities=keys.authorities, bounds=bounds, method="POST", sent=form) as (response, pace):
        if response.status != 200:
            cure = "does the role trust the namespace's ServiceAccount default, for the audience sts.amazonaws.com?"
            reason = WorkerReason.MODEL_ACCESS_DENIED if response.status in (400, 401, 403) else WorkerReason.MODEL_UNREACHABLE
            raise WorkerError(reason, f"{url} answered HTTP {status_words(response.status)} for {role}; {cure}")
        return _parsed(small_body(response, pace, url, limit=_STS_LIMIT_BYTES), url)


def _parsed(document: bytes, told: str) -> Credentials:
    # Each is one element without markup within, so that no parser of XML, with what documents can do to it, is needed.
    found = [re.findall(rb"<%s>([!-;=-~]{1,16384})</%s>" % (name, name), document) for name in _ELEMENTS]
    if any(len(values) != 1 for values in found):
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told} answered without credentials; is it a security token service?")
    return Credentials(*(values[0].decode("ascii") for values in found))
