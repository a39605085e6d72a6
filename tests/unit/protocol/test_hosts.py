"""The list of hosts that URLs may name: what it lets through, and what only looks as if it were on it."""

import pytest

from inference_protocol.hosts import entry_fault, host_fault

LIST = ("models.example", "*.files.example", "10.0.0.7", "fd12::7")


@pytest.mark.parametrize(
    "host",
    ["models.example", "MODELS.example", "models.example.", "a.files.example", "a.b.files.example", "10.0.0.7", "fd12:0::7"],
)
def test_a_listed_host_is_allowed_however_it_is_spelt(host: str) -> None:
    assert host_fault(host, LIST) is None


@pytest.mark.parametrize(
    "host",
    [
        "example",
        "evilmodels.example",
        "a.models.example",
        "models.example.evil.test",
        "files.example",
        "evilfiles.example",
        ".files.example",
        "10.0.0.70",
        "167772167",
        "0xa000007",
        "fd12::8",
        "models.example..",
        # A resolver maps these letters, and reads a backslash as part of a label: the name would end elsewhere.
        "models。example",
        "evil.test\\.files.example",
        "$(APP_X).files.example",
        "evil.test%2e.files.example",
        "evil.test\x00.files.example",
        "",
    ],
)
def test_what_only_looks_like_a_listed_host_is_refused_with_the_list(host: str) -> None:
    assert f"this cluster allows {', '.join(LIST)}" in (host_fault(host, LIST) or "")


def test_without_a_list_every_host_is_allowed() -> None:
    assert host_fault("anywhere.test", ()) is None


@pytest.mark.parametrize("entry", [*LIST, "minio.storage.svc", "localhost", "Models.Example", "models.example."])
def test_a_name_a_suffix_and_an_address_can_be_listed(entry: str) -> None:
    assert entry_fault(entry) is None


@pytest.mark.parametrize(
    "entry",
    [
        *("", "*", "*.", "https://models.example", "models.example:443", "models.example/m", "*.*.example", "a*.example"),
        *("10.0.0.0/8", "*.0.0.7", "*.10.0.0.7", "*.fd12::7", "a..example", "größe.example", "10.0.0"),
    ],
)
def test_an_entry_that_would_allow_something_else_than_it_says_is_refused(entry: str) -> None:
    assert entry_fault(entry) is not None
