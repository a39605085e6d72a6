"""Which addresses a worker may fetch from: the name in the URL decides nothing, the address behind it all."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import UriError, forbidden_address, parse_uri
from inference_worker import fetch, outbound
from inference_worker.errors import WorkerError

METADATA = "169.254.169.254"
FORBIDDEN = [
    METADATA,
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "ff02::1",
    "::ffff:169.254.169.254",
    "::ffff:127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::7f00:1",
    "2001:0:1:1:0:0:5601:5601",
    "fd00:ec2::254",
]
ALLOWED = ["10.0.0.7", "172.16.3.4", "192.168.1.1", "93.184.216.34", "2606:2800:220:1::1", "fd12:3456::1", "64:ff9b::5db8:d822"]


def download(url: str) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        fetch.read_verified(url, digest=None, limit=100, missing=WorkerReason.MODEL_NOT_FOUND, hosts=())
    return caught.value


@pytest.fixture
def no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "_open", lambda *_: pytest.fail("it connected"))


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    found = [(socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, 80)) for a in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


@pytest.mark.parametrize("address", FORBIDDEN)
def test_addresses_of_the_node_and_of_nobody_are_forbidden(address: str) -> None:
    assert forbidden_address(ipaddress.ip_address(address)) is not None


@pytest.mark.parametrize("address", ALLOWED)
def test_addresses_of_the_cluster_and_the_world_are_allowed(address: str) -> None:
    assert forbidden_address(ipaddress.ip_address(address)) is None


def test_the_metadata_service_behind_a_6to4_address_is_forbidden() -> None:
    assert forbidden_address(ipaddress.ip_address("2002:a9fe:a9fe::1")) is not None


@pytest.mark.parametrize(
    "url",
    [
        f"http://{METADATA}/latest/meta-data/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[fe80::1]/",
        "https://127.0.0.1:8443/m",
        "http://0.0.0.0/",
    ],
)
def test_a_literal_forbidden_address_is_refused_by_the_parser(url: str) -> None:
    with pytest.raises(UriError):
        parse_uri(url)


@pytest.mark.parametrize("host", ["2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "127.1"])
@pytest.mark.usefixtures("no_connections")
def test_an_address_in_disguise_is_refused_once_it_is_resolved(host: str) -> None:
    error = download(f"http://{host}/latest/")

    assert error.reason is WorkerReason.URI_FORBIDDEN and error.permanent


@pytest.mark.parametrize("address", FORBIDDEN)
@pytest.mark.usefixtures("no_connections")
def test_a_name_that_resolves_to_a_forbidden_address_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    resolve_to(monkeypatch, address)

    error = download("http://models.example/m.onnx")

    assert error.reason is WorkerReason.URI_FORBIDDEN and "models.example" in error.message


@pytest.mark.usefixtures("no_connections")
def test_one_forbidden_address_among_good_ones_is_enough_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "93.184.216.34", METADATA)

    assert download("http://models.example/m").reason is WorkerReason.URI_FORBIDDEN


@pytest.mark.usefixtures("no_connections")
def test_a_scoped_link_local_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "fe80::1%eth0")

    assert download("http://models.example/m").reason is WorkerReason.URI_FORBIDDEN


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([["93.184.216.34"], [METADATA]])
    lookups: list[object] = []
    connected: list[object] = []

    def rebind(*_: object, **__: object) -> list[tuple[object, ...]]:
        lookups.append(1)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, 80)) for a in next(answers)]

    def connect(address: str, port: int) -> None:
        connected.append((address, port))
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "getaddrinfo", rebind)
    monkeypatch.setattr(outbound, "_open", connect)

    error = download("http://models.example/m")

    assert (error.reason, error.permanent) == (WorkerReason.MODEL_UNREACHABLE, False)
    assert connected == [("93.184.216.34", 80)] and len(lookups) == 1


def test_an_unknown_host_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    error = download("https://nowhere.example/m")

    assert error.reason is WorkerReason.MODEL_UNREACHABLE and not error.permanent and "nowhere.example" in error.message


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", ".example"])
def test_an_impossible_host_name_is_an_error_that_says_so(host: str) -> None:
    assert host in download(f"http://{host}/m").message


@pytest.mark.parametrize("url", ["http://user:secret@host/m", "https://token@host/m"])
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UriError) as caught:
        parse_uri(url)

    assert "secret" not in str(caught.value) and "token@" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://", "http:///m", "https://host:99999/m", "https://host:port/m"])
def test_a_url_without_a_usable_host_is_refused(url: str) -> None:
    with pytest.raises(UriError):
        parse_uri(url)
