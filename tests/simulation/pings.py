"""A stand-in for connections to workers: who lives and can be reached answers at once."""

from inference_operator.runtime.pings import Word
from tests.simulation.api import At, Raw, SimulatedApi


class SimulatedPings:
    """Answers for all workers; those in `silent` and those on its nodes say nothing. A worker's address is its pod's uid."""

    def __init__(self, api: SimulatedApi, silent: set[str]) -> None:
        self._api = api
        self._silent = silent
        self._asked: dict[str, str] = {}

    def ask(self, key: str, address: str) -> None:
        """See Pinger."""
        self._asked.setdefault(key, address)

    def forget(self, key: str) -> None:
        """See Pinger."""
        self._asked.pop(key, None)

    def collect(self) -> list[tuple[str, Word]]:
        """See Pinger."""
        heard = [(key, word) for key, address in self._asked.items() if (word := self._word(address)) is not None]
        for key, _ in heard:
            del self._asked[key]
        return heard

    def _word(self, address: str) -> Word | None:
        raw = next((raw for raw in self._api.all("pods").values() if raw["metadata"]["uid"] == address), None)
        node = raw["spec"].get("nodeName", "") if raw is not None else ""
        if raw is None or {node, address} & self._silent or At("nodes", "", node) not in self._api.objects:
            return None
        return Word.ANSWERED if _runs(raw) else Word.REFUSED


def _runs(raw: Raw) -> bool:
    return bool(raw["status"].get("phase") == "Running")
