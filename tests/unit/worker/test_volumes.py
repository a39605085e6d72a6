"""A location leads inside its volume or nowhere, whatever links say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from inference_protocol.reasons import WorkerReason
from inference_worker.errors import WorkerError
from inference_worker.volumes import open_local

if TYPE_CHECKING:
    from pathlib import Path


def forbidden(text: str, root: Path) -> str:
    with pytest.raises(WorkerError) as caught:
        open_local(text, root=root)
    assert caught.value.reason is WorkerReason.URI_FORBIDDEN and caught.value.permanent
    return caught.value.message


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.mkdir()
    (path / "key").write_text("of somebody else")
    return path


@pytest.mark.parametrize(
    "path", ["../secret/key", "a/../../secret/key", "..", "a/..", "%2e%2e/secret/key", "a/%2E%2E/%2e%2e/secret", "./../secret"]
)
def test_dots_never_climb(root: Path, secret: Path, path: str) -> None:
    assert "'..'" in forbidden(f"pvc://data/{path}", root)


@pytest.mark.parametrize("claim", ["..", ".", "", "DATA", "a_b", "-a", "a/../b", "data%2f..", "*"])
def test_a_claim_is_a_plain_name(root: Path, claim: str) -> None:
    forbidden(f"pvc://{claim}", root)


@pytest.mark.parametrize(
    "text", ["pvc://data/a\\..\\b", "pvc://data/a%5cb", "pvc://data/a%00b", "pvc://data/a\nb", "pvc://data/a\0b"]
)
def test_backslashes_and_control_characters_are_refused(root: Path, text: str) -> None:
    forbidden(text, root)


def test_a_link_to_a_file_outside_is_refused(root: Path, volume: Path, secret: Path) -> None:
    (volume / "m").symlink_to(secret / "key")

    assert "link out of its volume" in forbidden("pvc://data/m", root)


def test_a_link_to_a_directory_outside_is_refused(root: Path, volume: Path, secret: Path) -> None:
    (volume / "d").symlink_to(secret)

    forbidden("pvc://data/d/key", root)


def test_a_relative_link_that_climbs_is_refused(root: Path, volume: Path, secret: Path) -> None:
    (volume / "deep").mkdir()
    (volume / "deep" / "m").symlink_to("../../../secret/key")

    forbidden("pvc://data/deep/m", root)


def test_a_chain_of_links_is_followed_to_its_end(root: Path, volume: Path, secret: Path) -> None:
    (volume / "a").symlink_to("b")
    (volume / "b").symlink_to("c")
    (volume / "c").symlink_to(secret / "key")

    forbidden("pvc://data/a", root)


def test_a_link_to_a_volume_whose_name_begins_alike_is_refused(root: Path, volume: Path) -> None:
    (root / "data-2").mkdir()
    (root / "data-2" / "key").write_text("x")
    (volume / "m").symlink_to(root / "data-2" / "key")

    forbidden("pvc://data/m", root)


def test_a_link_that_points_nowhere_outside_is_refused_too(root: Path, volume: Path, tmp_path: Path) -> None:
    (volume / "out").symlink_to(tmp_path / "not-there-yet")

    forbidden("pvc://data/out/part", root)


def test_links_inside_of_the_volume_are_followed(root: Path, volume: Path) -> None:
    (volume / "models").mkdir()
    (volume / "models" / "m-1").write_text("x")
    (volume / "current").symlink_to("models/m-1")
    (volume / "absolute").symlink_to(volume / "models")

    assert open_local("pvc://data/current", root=root) == volume / "models" / "m-1"
    assert open_local("pvc://data/absolute/m-1", root=root) == volume / "models" / "m-1"


def test_a_volume_that_is_itself_mounted_through_a_link_works(root: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "m").write_text("x")
    (root / "linked").symlink_to(tmp_path / "disk")

    assert open_local("pvc://linked/m", root=root) == tmp_path / "disk" / "m"


def test_the_whole_claim_and_odd_slashes_are_a_location(root: Path, volume: Path) -> None:
    assert open_local("pvc://data", root=root) == volume
    assert open_local("pvc://data///a/./b/", root=root) == volume / "a" / "b"


@pytest.mark.parametrize(
    "text", ["https://host/out", "s3://bucket/key", "/absolute", "relative", "", "data:text/plain,x", "file://host/x"]
)
def test_what_is_no_local_location_says_what_would_be(root: Path, text: str) -> None:
    assert "://" in forbidden(text, root)


@pytest.mark.parametrize("text", ["http://[::1", "pvc://[a", "http://a]b/m.onnx", "https://exa\u2100mple/m.onnx"])
def test_a_malformed_authority_is_a_forbidden_uri(root: Path, text: str) -> None:
    forbidden(text, root)
