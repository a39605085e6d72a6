"""Compressed bodies: whatever was compressed comes back, whatever is none is refused, and no few bytes become gigabytes."""

from __future__ import annotations

import contextlib
import gzip
import random
import zlib
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.errors import RequestError
from inference_worker.serve import compression
from inference_worker.serve.budget import Budget
from inference_worker.serve.compression import accepted, coding_of, deflate, inflate
from tests.unit.worker.conftest import STEADY

MIB = 1 << 20


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    return deflater.compress(data) + deflater.flush()


FORMS = {
    "gzip": ("gzip", gzip.compress),
    "two members": ("gzip", lambda data: gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])),
    "deflate": ("deflate", zlib.compress),
    "deflate without its frame": ("deflate", raw_deflate),
    "stored": ("deflate", lambda data: zlib.compress(data, 0)),
}


def refused(payload: bytes, coding: str = "gzip", budget: Budget | None = None, *, limit: int = MIB) -> RequestError:
    with pytest.raises(RequestError) as caught:
        inflate(payload, coding, budget or Budget(), limit=limit)
    return caught.value


@pytest.mark.parametrize("form", FORMS)
@given(data=st.one_of(st.binary(max_size=300), st.binary(min_size=1, max_size=8).map(lambda part: part * 20_000)))
@STEADY
def test_what_any_client_compresses_comes_back(form: str, data: bytes) -> None:
    coding, compress = FORMS[form]
    budget = Budget()

    assert inflate(compress(data), coding, budget) == data
    assert budget.taken == len(data)


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, 3 * MIB + 1])
@pytest.mark.parametrize("coding", compression.CODINGS)
def test_what_we_compress_comes_back_by_the_standard_library(coding: str, size: int) -> None:
    data = (b"abcd" * (size // 4 + 1))[:size]
    packed = deflate(data, coding)

    assert packed is not None
    assert (gzip.decompress if coding == "gzip" else zlib.decompress)(packed) == data


def test_large_random_numbers_are_not_worth_compressing() -> None:
    assert deflate(random.Random(1).randbytes(MIB), "gzip") is None


@given(st.binary(max_size=200), st.sampled_from(compression.CODINGS))
@STEADY
def test_any_bytes_are_inflated_or_refused_and_leave_no_room_taken(payload: bytes, coding: str) -> None:
    budget = Budget()
    left = 0
    with contextlib.suppress(RequestError):
        left = len(inflate(payload, coding, budget))
    assert budget.taken == left


@given(st.binary(max_size=64), st.integers(1, 40), st.sampled_from(sorted(FORMS)))
@STEADY
def test_half_a_body_is_refused(data: bytes, lost: int, form: str) -> None:
    coding, compress = FORMS[form]
    whole = compress(data)
    budget = Budget()

    assert refused(whole[: max(0, len(whole) - lost)], coding, budget).status is HTTPStatus.BAD_REQUEST
    assert budget.taken == 0


@pytest.mark.parametrize("form", ["gzip", "deflate", "deflate without its frame"])
def test_a_bomb_is_refused_at_the_limit_and_no_further(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    coding, compress = FORMS[form]
    taken: list[int] = []
    monkeypatch.setattr(Budget, "take", lambda _, size: taken.append(size))
    monkeypatch.setattr(Budget, "give", lambda _, size: taken.append(-size))

    error = refused(compress(bytes(64 * MIB)), coding, limit=2 * MIB)

    assert error.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE and str(2 * MIB) in error.message
    assert sum(taken) == 0 and sum(size for size in taken if size > 0) <= 3 * MIB


def test_a_bomb_in_many_members_is_refused_too() -> None:
    assert refused(gzip.compress(bytes(MIB)) * 8, limit=4 * MIB).status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def test_thousands_of_empty_members_are_refused() -> None:
    assert "members" in refused(gzip.compress(b"") * 5000).message


def test_just_the_limit_is_taken_and_a_byte_more_is_not() -> None:
    assert len(inflate(gzip.compress(bytes(MIB)), "gzip", Budget(), limit=MIB)) == MIB
    assert refused(gzip.compress(bytes(MIB + 1))).status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def test_bodies_beyond_the_common_room_are_told_to_come_back() -> None:
    budget = Budget(3 * MIB)
    inflate(gzip.compress(bytes(2 * MIB)), "gzip", budget, limit=2 * MIB)

    error = refused(gzip.compress(bytes(2 * MIB)), budget=budget, limit=2 * MIB)

    assert error.status is HTTPStatus.TOO_MANY_REQUESTS and error.retry_after_seconds
    assert budget.taken == 2 * MIB
    budget.give(2 * MIB)
    inflate(gzip.compress(bytes(2 * MIB)), "gzip", budget, limit=2 * MIB)


@pytest.mark.parametrize(
    ("header", "coding"),
    [("gzip", "gzip"), ("GZIP", "gzip"), ("x-gzip", "gzip"), (" deflate ", "deflate"), ("identity", None), ("", None)],
)
def test_content_codings_are_taken_as_the_standard_spells_them(header: str, coding: str | None) -> None:
    assert coding_of(header) == coding


@pytest.mark.parametrize("header", ["br", "zstd", "gzip, gzip", "gzip, br", "compress", "x" * 5000])
def test_other_content_codings_are_a_415_that_names_what_is_taken(header: str) -> None:
    with pytest.raises(RequestError, match="gzip or deflate") as caught:
        coding_of(header)
    assert caught.value.status is HTTPStatus.UNSUPPORTED_MEDIA_TYPE and len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("deflate, gzip, br, zstd", "gzip"),
        ("gzip;q=0.5, deflate", "deflate"),
        ("gzip;q=0, deflate;q=0.1", "deflate"),
        ("GZIP; q=1.0", "gzip"),
        ("*", "gzip"),
        ("*;q=0", None),
        ("gzip;q=0", None),
        ("br", None),
        ("", None),
        ("identity, gzip;q=0.5", None),
        ("x-gzip", "gzip"),
        ("gzip;q=nan", None),
        ("gzip;q=x", None),
        ("gzip, " * 1000, None),
    ],
)
def test_an_answer_has_the_coding_that_its_caller_likes_best(header: str, coding: str | None) -> None:
    assert accepted(header) == coding


@given(st.text(max_size=60))
@STEADY
def test_any_wish_for_a_coding_is_understood_or_passed_over(header: str) -> None:
    assert accepted(header) in (None, *compression.CODINGS)
