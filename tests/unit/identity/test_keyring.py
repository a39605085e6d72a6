"""The authority's keys over time, simulated by the hour: whatever is signed is trusted by all who have asked in time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from inference_operator.identity.keyring import Keyring, Lifetimes, rotated
from inference_operator.runtime.pki import validity_of

NOW = datetime(2026, 4, 2, 12, tzinfo=UTC)
DAY = timedelta(days=1)
YEAR = Lifetimes(certificate=DAY, authority=365 * DAY)
WEEK = Lifetimes(certificate=DAY, authority=7 * DAY)


def test_the_first_key_signs_at_once() -> None:
    ring = rotated(None, NOW, YEAR)

    assert ring.following is None
    assert ring.trust == ring.signing.certificate
    assert validity_of(ring.signing.certificate).end > NOW + 365 * DAY


def test_nothing_changes_while_nothing_is_due() -> None:
    ring = rotated(None, NOW, YEAR)

    assert rotated(ring, NOW + 300 * DAY, YEAR) is ring


def test_what_is_signed_at_any_time_is_trusted_by_all_who_have_asked_within_a_certificates_life() -> None:
    ring: Keyring | None = None
    asked: list[tuple[datetime, Keyring]] = []
    signers = set()
    for hours in range(0, 24 * 40, 4):
        now = NOW + timedelta(hours=hours)
        ring = rotated(ring, now, WEEK)
        asked = [(since, known) for since, known in asked if now - since <= WEEK.certificate]
        for _, known in asked:
            # Either side checks the other's certificate by what it has heard last.
            assert ring.signing.certificate in known.trust
            assert known.signing.certificate in ring.trust
        assert validity_of(ring.signing.certificate).end >= now + WEEK.certificate
        signers.add(ring.signing.certificate)
        asked.append((now, ring))

    assert len(signers) >= 4
    assert ring is not None
    assert len(ring.retired) <= 2


def test_a_next_key_that_was_made_late_is_known_for_a_while_all_the_same() -> None:
    """No operator ran for a long time: the first that comes must not sign by what nobody has heard of."""
    first = rotated(None, NOW, WEEK)
    late = validity_of(first.signing.certificate).end - timedelta(hours=5)
    waiting = rotated(first, late, WEEK)

    assert (waiting.signing, rotated(waiting, late + DAY, WEEK).signing) == (first.signing, first.signing)
    after = rotated(waiting, late + 2 * DAY, WEEK)
    assert after.signing == waiting.following
    assert first.signing.certificate in after.trust or validity_of(first.signing.certificate).end <= late + 2 * DAY


def test_a_retired_key_goes_when_it_has_expired() -> None:
    ring = replace(rotated(None, NOW, YEAR), retired=(rotated(None, NOW - 400 * DAY, YEAR).signing.certificate,))

    assert rotated(ring, NOW, YEAR).retired == ()


def test_a_key_that_can_not_be_read_is_said_so() -> None:
    ring = rotated(None, NOW, YEAR)
    with pytest.raises(ValueError, match=r".+"):
        rotated(replace(ring, signing=replace(ring.signing, certificate="junk")), NOW, YEAR)
