"""Regions of shared memory: what may be registered, and what becomes of them while they are used."""

from __future__ import annotations

import os
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.datatypes import NUMPY
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import RequestError
from inference_worker.serve.ask import Ask, Extras, Read, Span, span_of
from inference_worker.serve.budget import Budget
from inference_worker.serve.extras import gathered
from inference_worker.serve.shared_memory import REGIONS, SharedMemory
from tests.unit.worker.conftest import STEADY


@pytest.fixture
def shared(tmp_path: Path) -> SharedMemory:
    (tmp_path / "shm").mkdir()
    (tmp_path / "shm" / "data").write_bytes(bytes(range(100)))
    return SharedMemory(allowed=True, directory=tmp_path / "shm")


@pytest.fixture
def file(shared: SharedMemory, tmp_path: Path) -> Path:
    return tmp_path / "shm" / "data"


def refused(work: Any, *arguments: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        work(*arguments)
    return caught.value


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_bytes_are_read_and_written_where_they_are(shared: SharedMemory, file: Path) -> None:
    shared.register("a", "/data", 10, 50)

    assert bytes(shared.read(Span("a", 5, 3))) == bytes([15, 16, 17])
    shared.write(Span("a", 48, 2), b"xy")
    assert file.read_bytes()[56:62] == bytes([56, 57]) + b"xy" + bytes([60, 61])
    assert shared.status("a") == [{"name": "a", "key": "/data", "offset": 10, "byte_size": 50}]


@pytest.mark.parametrize("key", ["data", "/data"])
def test_a_key_is_what_shm_open_takes(shared: SharedMemory, key: str) -> None:
    shared.register("a", key, 0, 100)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        ".",
        "..",
        "/..",
        "//data",
        "a/b",
        "/a/b",
        "../data",
        "/../etc/passwd",
        "data\0",
        "\0",
        "x" * 256,
        "/" + "ü" * 200,
        "nobody",
    ],
)
def test_what_names_no_shared_memory_is_refused(shared: SharedMemory, tmp_path: Path, key: str) -> None:
    (tmp_path / "data").write_bytes(b"outside")
    before = open_files()

    error = refused(shared.register, "a", key, 0, 1)

    assert error.status is HTTPStatus.BAD_REQUEST and len(error.message) < 500
    assert shared.status("") == [] and open_files() == before


@given(
    st.text(max_size=30),
    st.integers(-(2**70), 2**70),
    st.one_of(st.none(), st.integers(-(2**70), 2**70), st.floats(), st.booleans()),
)
@STEADY
def test_any_key_and_any_size_are_registered_or_refused(key: str, offset: int, size: Any) -> None:
    shared = SharedMemory(allowed=True, directory=Path("/nowhere"))

    assert refused(shared.register, "a", key, offset, size).status is HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize("kind", ["link", "link outside", "pipe", "folder"])
def test_links_pipes_and_folders_are_refused_at_once(shared: SharedMemory, file: Path, kind: str) -> None:
    odd = file.with_name("odd")
    match kind:
        case "link":
            odd.symlink_to(file)
        case "link outside":
            odd.symlink_to("/etc/passwd")
        case "pipe":
            os.mkfifo(odd)
        case "folder":
            odd.mkdir()

    assert refused(shared.register, "a", "odd", 0, 1).status is HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 101), (100, 1), (51, 50), (2**39, 1), (-1, 5), (0, 0), (0, -5), (True, 5), ("0", 5), (0, None)]
)
def test_a_region_beyond_its_file_is_refused_with_the_files_size(shared: SharedMemory, offset: Any, size: Any) -> None:
    assert refused(shared.register, "a", "data", offset, size).status is HTTPStatus.BAD_REQUEST


def test_ten_thousand_regions_are_bounded_and_leave_room_when_they_are_gone(shared: SharedMemory) -> None:
    before = open_files()
    for i in range(REGIONS):
        shared.register(str(i), "data", 0, 1)
    told = {refused(shared.register, str(i), "data", 0, 1).status for i in range(REGIONS, 10_000)}

    assert told == {HTTPStatus.TOO_MANY_REQUESTS} and open_files() <= before + REGIONS + 1
    shared.unregister("")
    assert shared.status("") == [] and open_files() <= before + 1
    shared.register("a", "data", 0, 1)


def test_a_name_is_registered_once(shared: SharedMemory) -> None:
    shared.register("a", "data", 0, 1)

    assert refused(shared.register, "a", "data", 0, 1).status is HTTPStatus.CONFLICT
    shared.unregister("a")
    shared.unregister("a")
    shared.register("a", "data", 0, 1)


def test_a_region_without_a_name_is_refused(shared: SharedMemory) -> None:
    assert "name" in refused(shared.register, "", "data", 0, 1).message


def test_a_file_that_shrinks_is_a_refusal_and_no_signal(shared: SharedMemory, file: Path) -> None:
    """Mapped, a shorter file ends the process that reads it with SIGBUS."""
    shared.register("a", "data", 0, 100)
    os.truncate(file, 50)

    assert "50 now" in refused(shared.read, Span("a", 0, 10)).message
    assert refused(shared.write, Span("a", 90, 10), b"x" * 10).status is HTTPStatus.BAD_REQUEST
    assert file.stat().st_size == 50


def test_a_file_that_shrinks_while_it_is_read_is_a_refusal(
    shared: SharedMemory, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.register("a", "data", 0, 100)
    real = os.preadv

    def shrinking(fd: int, views: Any, position: int) -> int:
        os.truncate(file, 30)
        return real(fd, views, position)

    monkeypatch.setattr(os, "preadv", shrinking)

    assert "shorter" in refused(shared.read, Span("a", 0, 100)).message


def test_a_file_that_is_removed_can_be_used_as_before(shared: SharedMemory, file: Path) -> None:
    shared.register("a", "data", 0, 100)
    file.unlink()

    assert bytes(shared.read(Span("a", 0, 2))) == bytes([0, 1])


def test_a_region_that_is_forgotten_while_it_is_used_is_used_to_the_end(
    shared: SharedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.register("a", "data", 0, 100)
    real = os.preadv

    def forgetting(fd: int, views: Any, position: int) -> int:
        shared.unregister("a")
        return real(fd, views, position)

    monkeypatch.setattr(os, "preadv", forgetting)

    assert bytes(shared.read(Span("a", 0, 3))) == bytes([0, 1, 2])
    assert "not registered" in refused(shared.read, Span("a", 0, 3)).message


@pytest.mark.parametrize("span", [Span("a", 0, 101), Span("a", 100, 1), Span("a", 2**39, 2**39), Span("b", 0, 1)])
def test_bytes_beyond_a_region_are_refused(shared: SharedMemory, span: Span) -> None:
    shared.register("a", "data", 0, 100)

    assert refused(shared.read, span).status is refused(shared.write, span, b"").status is HTTPStatus.BAD_REQUEST


def test_an_answer_larger_than_its_place_is_refused_and_writes_nothing(shared: SharedMemory, file: Path) -> None:
    shared.register("a", "data", 0, 100)

    assert "11 bytes" in refused(shared.write, Span("a", 0, 10), b"x" * 11).message
    assert file.read_bytes() == bytes(range(100))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_can_only_be_read_is_read(shared: SharedMemory, file: Path) -> None:
    file.chmod(0o400)
    shared.register("a", "data", 0, 100)

    assert shared.read(Span("a", 0, 1)) and "writable" in refused(shared.write, Span("a", 0, 1), b"x").message


def test_where_the_job_does_not_allow_it_nothing_is_opened(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x")
    shared = SharedMemory(allowed=False, directory=tmp_path)

    error = refused(shared.register, "a", "data", 0, 1)

    assert error.status is HTTPStatus.FORBIDDEN and "serve.sharedMemory" in error.message
    assert "serve.sharedMemory" in refused(shared.read, Span("a", 0, 1)).message
    shared.unregister("")
    assert refused(shared.status, "").status is HTTPStatus.NOT_IMPLEMENTED


@given(
    st.dictionaries(
        st.sampled_from(["shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"]),
        st.one_of(st.text(max_size=5), st.integers(), st.none(), st.floats(), st.booleans(), st.lists(st.integers())),
    )
)
@STEADY
def test_any_parameters_are_a_span_or_a_400(parameters: dict[str, Any]) -> None:
    try:
        span = span_of(parameters, "input 'x'")
    except RequestError as error:
        assert error.status is HTTPStatus.BAD_REQUEST  # noqa: PT017
    else:
        assert span.region and span.offset >= 0 and span.byte_size >= 0


def test_an_input_in_no_bytes_of_shared_memory_is_an_input_or_a_400(shared: SharedMemory) -> None:
    """Fuzzing found it: such an input was left out, and the run failed for want of it with 500."""
    shared.register("a", "/data", 0, 100)
    spec = TensorSpec("x", "FP32", NUMPY["FP32"], (None, 2))
    asked = [Extras({"x": Read(spec, shape, Span("a", 0, 0))}) for shape in ((0, 2), (1, 2))]
    empty, short = [partial(gathered, Ask("", {}, ()), extras, shared, Budget(), shared) for extras in asked]

    assert empty().feeds["x"].shape == (0, 2)
    assert refused(short).status is HTTPStatus.BAD_REQUEST
