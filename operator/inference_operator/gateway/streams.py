"""One Envoy's stream: what it asked for, what it was told, and what it has to be told next (state of the world)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from inference_operator.gateway import messages
from inference_operator.gateway.resources import Resource, Resources

# Keys before those who show them, clusters before those who lead to them, so that no route ever leads nowhere.
ORDER = (messages.SECRET, messages.CLUSTER, messages.ENDPOINTS, messages.LISTENER, messages.ROUTES)
# Of these a response always has all: what it leaves out is gone.
_WHOLE = frozenset({messages.CLUSTER, messages.LISTENER})


@dataclass(frozen=True, slots=True)
class Request:
    """What an Envoy says. `refused` is its reason not to take what it was told last; empty where it took it."""

    kind: str
    nonce: str = ""
    names: frozenset[str] = frozenset()
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """What an Envoy is told."""

    kind: str
    version: str
    nonce: str
    resources: tuple[Resource, ...]


@dataclass(slots=True)
class _Subscription:
    names: frozenset[str]
    # The versions of what was told, by name.
    told: dict[str, str] = field(default_factory=dict)
    nonce: str = ""
    # Whether what was told last has an answer.
    answered: bool = True


class Conversation:
    """What one stream remembers. Nothing is told twice, taken or refused: a refusal is mended by other news alone."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, _Subscription] = {}
        self._responses = 0

    def hear(self, request: Request) -> bool:
        """Take in a request; whether it refuses what was told last. One about an older response says nothing any more."""
        if request.kind not in ORDER:
            return False
        known = self._subscriptions.get(request.kind)
        if known is None:
            self._subscriptions[request.kind] = _Subscription(request.names)
            return bool(request.refused)
        if request.nonce != known.nonce:
            return False
        known.answered = True
        if request.names != known.names:
            # A name that comes back was dropped in between, and has to be told anew.
            known.told = {name: version for name, version in known.told.items() if name in request.names & known.names}
            known.names = request.names
        return bool(request.refused)

    @property
    def answered(self) -> bool:
        """Whether the Envoy has taken, or refused, all that it was told."""
        return all(known.answered for known in self._subscriptions.values())

    def due(self, now: Resources) -> Iterator[Response]:
        """What is to be said, in its order."""
        for kind in ORDER:
            known = self._subscriptions.get(kind)
            if known is None:
                continue
            asked = {name: one for name, one in now[kind].items() if kind in _WHOLE or name in known.names}
            versions = {name: one.version for name, one in asked.items()}
            news = [one for name, one in asked.items() if known.told.get(name) != one.version]
            gone = known.told.keys() - versions.keys()
            # A first response is due even if it is empty: Envoy waits for it before it listens.
            if not (news or (kind in _WHOLE and (gone or not known.nonce))):
                continue
            self._responses += 1
            known.told, known.nonce, known.answered = versions, str(self._responses), False
            told = tuple(asked.values()) if kind in _WHOLE else tuple(news)
            yield Response(kind, _version(versions), known.nonce, told)


def _version(versions: Mapping[str, str]) -> str:
    """One version of many resources: the same for the same, whichever replica tells."""
    return sha256("\n".join(f"{name}={version}" for name, version in sorted(versions.items())).encode()).hexdigest()[:16]
