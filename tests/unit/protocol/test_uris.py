"""Locations: nothing accepted climbs out of its volume, and a metadata service is refused in every spelling."""

import ipaddress
import re
import socket
from collections import Counter
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_protocol.uris import (
    FileUri,
    GsUri,
    HttpUri,
    HubUri,
    OciUri,
    PvcUri,
    S3Uri,
    UriError,
    forbidden_address,
    is_uri,
    parse_uri,
)

pieces = st.sampled_from(
    [*("..", ".", "/", "//", "\\", "a", "b c", "?", "#", ";", "@", ":", "[", "]", "pvc", ""),
     *("%2e", "%2E%2e", "%2f", "%5c", "%", "%25", "%00", "\u2025", "\uff0e")]
)  # fmt: skip
texts = st.builds(
    lambda scheme, rest: scheme + "".join(rest),
    st.sampled_from(["pvc://claim/", "pvc://", "file:///", "file://", "http://h/", "https://", "PVC://c/", "pvc:", "", "s3://b/"]),
    st.lists(pieces, max_size=8),
)


@given(texts)
def test_what_is_accepted_never_climbs(text: str) -> None:
    try:
        uri = parse_uri(text)
    except ValueError:
        return
    match uri:
        case PvcUri(_, path):
            assert ".." not in path.parts
            assert not path.is_absolute()
        case FileUri(path):
            assert ".." not in path.parts
            assert path.is_absolute()
        case HttpUri(_, host):
            assert host


@given(
    st.lists(st.sampled_from(["a", "b.onnx", "..", "."]), min_size=1, max_size=5).filter(lambda s: ".." in s),
    st.sampled_from(["plain", "escaped"]),
)
def test_a_climbing_path_is_refused_plain_and_escaped(segments: list[str], spelling: str) -> None:
    path = "/".join(quote(s).replace(".", "%2e") if spelling == "escaped" else s for s in segments)

    for text in (f"pvc://claim/{path}", f"file:///{path}"):
        with pytest.raises(UriError, match=r"\.\."):
            parse_uri(text)


@pytest.mark.parametrize("text", ["http://[", "http://[::1", "https://[x]/m.onnx", "http://h\u2100/x"])
def test_a_malformed_host_is_a_uri_error(text: str) -> None:
    with pytest.raises(UriError):
        parse_uri(text)


BEGINNINGS = ("pvc://claim/", "file:///", "http://host/", "https://")


def test_a_text_is_read_or_refused_and_nothing_else() -> None:
    seen: Counter[str] = Counter()

    anything = st.text(max_size=30) | st.text(max_size=10).map(quote)

    @given(anything | texts | st.builds(str.__add__, st.sampled_from(BEGINNINGS), anything))
    def look(text: str) -> None:
        try:
            found = parse_uri(text)
        except UriError:
            seen["refused"] += 1
            return
        seen[type(found).__name__] += 1
        match found:
            case PvcUri(claim, path):
                assert [f"pvc://{claim}", *segments(text, 3)] == [text[: len(claim) + 6], *path.parts]
            case FileUri(path):
                assert ["/", *segments(re.split("[?#]", text)[0], 2)] == [*path.parts]
            case HttpUri(url, _):
                assert url == text

    look()
    # Each of them was really met.
    assert {"refused", "PvcUri", "FileUri", "HttpUri"} == seen.keys()


def segments(text: str, slashes: int) -> list[str]:
    """The names in a path that begins behind so many slashes, as a reader of the text sees them."""
    path = text.split("/", slashes)[slashes:]
    return [name for name in unquote("".join(path)).split("/") if name not in ("", ".")]


FULL_WIDTH = {digit: digit + 0xFEE0 for digit in range(ord("0"), ord("9") + 1)}
METADATA = [
    *(
        "169.254.169.254",
        "169.254.170.2",
        "@169.254.169.254",
        "169.254.169.254".translate(FULL_WIDTH),
        "169\u3002254\u3002169\u3002254",
    ),
    *("2852039166", "0xA9FEA9FE", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.43518", "169.16689662"),
    *("[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]"),
    *("[fe80::1%25eth0]", "[fd00:ec2::254]", "[FD00:EC2:0::254]"),
]


def refused_here_or_after_resolution(host: str) -> bool:
    """As operator and worker do it together: by the text, else by the addresses that the name stands for."""
    try:
        uri = parse_uri(f"http://{host}/latest/meta-data")
    except UriError:
        return True
    assert isinstance(uri, HttpUri)
    found = socket.getaddrinfo(uri.host, 80, type=socket.SOCK_STREAM)
    return all(forbidden_address(ipaddress.ip_address(str(info[4][0]).split("%")[0])) for info in found)


@pytest.mark.parametrize("host", METADATA)
def test_the_metadata_service_is_refused_in_every_spelling(host: str) -> None:
    assert refused_here_or_after_resolution(host)


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("100.100.100.200", id="Alibaba Cloud's metadata service"),
        pytest.param("168.63.129.16", id="Azure's WireServer, which hands out certificates"),
        pytest.param("192.0.0.192", id="Oracle Cloud's metadata service"),
        pytest.param("[fd20:ce::254]", id="Google Cloud's metadata service over IPv6"),
        pytest.param("[fd00:ec2::23]", id="EKS pod identity agent over IPv6"),
    ],
)
def test_other_clouds_metadata_services_are_refused(host: str) -> None:
    assert refused_here_or_after_resolution(host)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "0.0.0.0", "[::]", "224.0.0.1", "240.0.0.1", "[ff02::1]", "[::ffff:127.0.0.1]"]
)
def test_the_worker_itself_and_groups_are_refused(host: str) -> None:
    with pytest.raises(UriError):
        parse_uri(f"http://{host}/")


@pytest.mark.parametrize("host", ["models.example.com", "10.1.2.3", "192.168.0.1:9000", "[fd12::1]"])
def test_plain_and_private_hosts_are_accepted(host: str) -> None:
    assert isinstance(parse_uri(f"https://{host}/m.onnx"), HttpUri)


@pytest.mark.parametrize(
    "text",
    ["http://user:secret@h/m", "https://token@h/m", "s3://b/key", "ftp://h/x", "/etc/passwd", "", "pvc:///x", "pvc://Claim/x",
     "pvc://-c/x", f"pvc://{'c' * 254}/x", "file://host/x", "http:///x", "http://h:99999/x", "http://h:x/", "pvc://c/a\\b", "pvc://c/\n"],
)  # fmt: skip
def test_what_is_refused_says_why(text: str) -> None:
    with pytest.raises(UriError, match=r".{10}"):
        parse_uri(text)


DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s3://models/a/m.onnx", S3Uri("models", "a/m.onnx")),
        ("s3://models/a%20b%2Bc", S3Uri("models", "a b+c")),
        ("gs://models_1.example.com/a%20b/", GsUri("models_1.example.com", "a b")),
        ("hf://org/net/m.onnx", HubUri("org/net", "main", "m.onnx")),
        ("hf://org/net.v2@refs%2Fpr%2F1/a/m.onnx", HubUri("org/net.v2", "refs/pr/1", "a/m.onnx")),
        ("oci://r.example/net", OciUri("r.example", "r.example", "net", "latest", "")),
        ("oci://r.example:5000/a/b:v1#x/m.onnx", OciUri("r.example:5000", "r.example", "a/b", "v1", "x/m.onnx")),
        (f"oci://r/a@{DIGEST}", OciUri("r", "r", "a", DIGEST, "")),
    ],
)
def test_a_location_in_a_store_is_read(text: str, wanted: object) -> None:
    assert parse_uri(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["s3://", "s3://models", "s3://models/", "s3://Models/k", "s3://models/a//b", "s3://models/a/../b", "s3://models/%2e%2e/b",
     "s3://models/k?endpoint=http://evil", "s3://user:secret@models/k", "s3://models/a%0d%0ab", "s3://169.254.169.254:80/k",
     "gs://models", "gs://Models/k", "gs://-models/k", "gs://models/../b", "gs://models/k?generation=1", "gs://user:x@models/k",
     "hf://net/m.onnx", "hf://org/net", "hf://org/net@/m.onnx", "hf://org/net@v1", "hf://org/net@../m.onnx", "hf://../net/m.onnx",
     "oci://r.example", "oci://r.example/Net", "oci://r.example/net:", "oci://r.example/net@sha256:abc", "oci://u:p@r.example/net",
     "oci://169.254.169.254/net", "oci://[::1]/net", "oci://r.example/a/../b", "oci://r.example/net#", "oci://r.example:x/net"],
)  # fmt: skip
def test_a_location_in_a_store_that_means_something_else_is_refused(text: str) -> None:
    with pytest.raises(UriError, match=r".{10}"):
        parse_uri(text)


def test_credentials_are_not_repeated_in_the_refusal() -> None:
    with pytest.raises(UriError) as refusal:
        parse_uri("http://user:secret@h/m")
    assert "secret" not in str(refusal.value)


def test_a_claim_and_its_path() -> None:
    uri = parse_uri("pvc://models/a/./b//c.onnx")

    assert isinstance(uri, PvcUri)
    assert (uri.claim, str(uri.path)) == ("models", "a/b/c.onnx")
    assert is_uri("pvc://models/a") and not is_uri("lane-detection-v2")
