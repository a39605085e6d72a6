"""What a worker remembers of its callers' heads: bounded by bytes, and counted in the budget."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import hpack
import pytest

from inference_worker.serve import grpc_raw
from inference_worker.serve.budget import Budget, limit_of
from inference_worker.serve.http2_headers import HeaderReader
from inference_worker.serve.http_heads import Head, KnownHeads
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


def grown(work: Callable[[], object]) -> int:
    """Bytes of Python's objects that it leaves behind."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = work()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept
    return after - before


def short_names(count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [a + b + c for a in letters for b in letters for c in letters][:count]


def test_heads_of_many_small_fields_count_what_they_take_in_memory() -> None:
    budget, names = Budget(64 * MIB), short_names(600)

    def work() -> KnownHeads:
        heads = KnownHeads(budget)
        for number in range(100):
            raw = b"GET /%d HTTP/1.1\r\n" % number + b"".join(b"%b:\r\n" % name.encode() for name in names) + b"\r\n"
            fields = {name.encode().decode(): "" for name in names}
            heads.remember(raw, Head("GET", f"/{number}", fields, True, "1.1", 0))
        return heads

    assert grown(work) <= budget.taken <= MIB


def test_header_blocks_of_many_small_fields_count_what_they_take_in_memory() -> None:
    budget, encoder = Budget(64 * MIB), hpack.Encoder()
    reader = HeaderReader(budget)
    fields = [(":method", "POST"), (":scheme", "http"), (":path", "/"), *((name, "") for name in short_names(20))]
    assert reader.read(encoder.encode(fields)) is not None
    plain = encoder.encode(fields)
    assert len(plain) < 150

    def work() -> HeaderReader:
        for number in range(200):
            assert reader.read(plain + b"\x00\x01a\x03%03d" % number) is not None
        return reader

    assert 5_000 < grown(work) <= budget.taken <= 64 << 10


def test_heads_of_messages_that_are_remembered_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 heads of 4 KiB were 22 MiB of empty messages, which no budget counted."""
    heads = grpc_raw._Heads()
    monkeypatch.setattr(grpc_raw, "_heads", heads)
    tensor = b"\x3a" + bytes([0x80, 0x80, 0x01]) + bytes(1 << 14)

    for number in range(300):
        head = b"\x1a\x03%03d" % number + b"\x2a\x00" * 120
        asked = grpc_raw.parse(head + tensor)
        assert asked.head == head and grpc_raw.parse(head + tensor).message is asked.message
        assert sum(map(len, heads)) <= 64 << 10
    assert len(heads) > 10


def test_remembered_heads_are_bounded_by_their_bytes() -> None:
    budget = Budget(64 * MIB)
    heads = KnownHeads(budget)

    for number in range(1500):
        raw = b"GET /%d HTTP/1.1\r\nA: " % number + b"y" * 4000 + b"\r\n\r\n"
        heads.remember(raw, Head("GET", f"/{number}", {"a": "y" * 4000}, True, "1.1", 0))
        assert sum(map(len, heads)) <= budget.taken <= MIB + 16384

    assert heads


def test_a_full_budget_remembers_no_heads() -> None:
    heads = KnownHeads(Budget(10))

    heads.remember(b"GET / HTTP/1.1\r\n\r\n", Head("GET", "/", {}, True, "1.1", 0))

    assert not heads


def test_remembered_header_blocks_are_bounded_by_what_they_mean() -> None:
    """One byte of a block may mean kilobytes: what the table holds."""
    budget = Budget(64 * MIB)
    reader, encoder = HeaderReader(budget), hpack.Encoder()
    usual = [(":method", "POST"), (":scheme", "http"), (":path", "/" + "x" * 1900)]
    assert reader.read(encoder.encode(usual)) is not None
    plain = encoder.encode(usual)

    for number in range(300):
        # Indexed nowhere, so that the table stays as it is.
        assert reader.read(plain + b"\x00\x01a\x03%03d" % number) is not None

    assert 2000 < budget.taken <= 64 << 10
    reader.forget()
    assert budget.taken == 0


def test_the_budget_always_has_room_for_the_largest_body_and_what_it_inflates_to() -> None:
    assert limit_of(256 * MIB) == 2 * BODY_LIMIT_BYTES
    assert limit_of(16 << 30) == 2 << 30
