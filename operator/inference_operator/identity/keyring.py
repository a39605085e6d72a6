"""The authority's keys over time: which one signs, which are trusted. A pure decision; whoever keeps the Secret carries it out.

The next key is trusted for a while before it signs: by then everybody has asked for a certificate, and heard of it. The last one is
trusted until nothing that it has signed is good any more.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from inference_operator.runtime.pki import Pair, Validity, new_authority, validity_of

_NAME = "inference-operator-authority"
_BACKDATED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long certificates are good, and how long an authority's key signs."""

    certificate: timedelta
    authority: timedelta

    @property
    def overlap(self) -> timedelta:
        """How long the next key is trusted before it signs: each worker renews twice in it, and one time may fail."""
        return 2 * self.certificate

    def of_authority(self, now: datetime) -> Validity:
        """Return the validity of a CA that is made now: trusted before it signs, and after."""
        return Validity.lasting(now, self.authority + 3 * self.overlap, backdated=_BACKDATED)

    def of_certificate(self, now: datetime) -> Validity:
        """Return the validity of a certificate that is made now."""
        return Validity.lasting(now, self.certificate, backdated=min(_BACKDATED, self.certificate / 10))


@dataclass(frozen=True, slots=True)
class Keyring:
    """The key that signs, the next one while it is only trusted, and certificates of those that sign no more. PEM."""

    signing: Pair
    following: Pair | None = None
    retired: tuple[str, ...] = ()

    @property
    def trust(self) -> str:
        """All CAs that are trusted."""
        following = (self.following.certificate,) if self.following is not None else ()
        return "".join((self.signing.certificate, *following, *self.retired))


def rotated(ring: Keyring | None, now: datetime, lifetimes: Lifetimes) -> Keyring:
    """Return the keyring as it should be now, which is the same one where nothing is due. Makes keys. Raises ValueError."""
    if ring is None:
        return Keyring(new_authority(_NAME, lifetimes.of_authority(now)))
    ends = validity_of(ring.signing.certificate).end - 2 * lifetimes.overlap
    kept = tuple(one for one in ring.retired if validity_of(one).end > now)
    if kept != ring.retired:
        ring = replace(ring, retired=kept)
    if ring.following is None:
        if now < ends - lifetimes.overlap:
            return ring
        return replace(ring, following=new_authority(_NAME, lifetimes.of_authority(now)))
    known_since = validity_of(ring.following.certificate).begin + _BACKDATED
    if now < max(ends, known_since + lifetimes.overlap):
        return ring
    return Keyring(ring.following, None, (*ring.retired, ring.signing.certificate))
