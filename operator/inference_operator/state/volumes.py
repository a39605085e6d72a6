"""The volumes that can't be mounted everywhere, as the watch has shown them, and what that means for the claims of a namespace."""

from collections.abc import Mapping

from inference_operator.state.topology import Terms, Volume


class Volumes:
    """Bound PersistentVolumes with node affinity, by name."""

    def __init__(self) -> None:
        self.known: dict[str, Volume] = {}
        # The same by their claims' namespaces and names: all jobs of a namespace share one look.
        self._terms: dict[str, dict[str, Terms]] = {}

    def put(self, name: str, volume: Volume | None) -> set[str]:
        """Take a volume in, None for one that holds nobody back; returns the namespaces where what can be mounted has changed."""
        before = self.known.pop(name, None)
        if volume is not None:
            self.known[name] = volume
        if before is not None and volume is not None and before.says == volume.says:
            return set()
        touched = {found.namespace for found in (before, volume) if found is not None}
        for namespace in touched:
            # Made anew, not changed: snapshots share it.
            self._terms[namespace] = dict(self._terms.get(namespace, {}))
        # The claim may have another volume by now.
        if before is not None and self._terms[before.namespace].get(before.claim) is before.terms:
            del self._terms[before.namespace][before.claim]
        if volume is not None:
            self._terms[volume.namespace][volume.claim] = volume.terms
        return touched

    def terms(self, namespace: str) -> Mapping[str, Terms]:
        """Where the volumes of a namespace's claims can be mounted, by claim."""
        return self._terms.get(namespace, {})
