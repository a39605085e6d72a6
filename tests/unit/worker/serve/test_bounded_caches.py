"""What a worker remembers of its callers' heads: bounded by bytes, and counted in the budget."""

from __future__ import annotations

import hpack

from inference_worker.serve.budget import Budget, limit_of
from inference_worker.serve.http2_headers import HeaderReader
from inference_worker.serve.http_heads import Head, KnownHeads
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES

MIB = 1 << 20


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
