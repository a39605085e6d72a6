"""A bound on the label `namespace`: names come and go, and counters stay as long as the process."""

OTHERS = "_others"
"""The label of all namespaces beyond the bound: no namespace can have this name."""


class NamespaceLabels:
    """Gives the first `most` namespaces their own labels, and all others one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def label(self, namespace: str) -> str:
        """Return the label of a namespace, the same each time."""
        if namespace not in self._known:
            if len(self._known) >= self._most:
                return OTHERS
            self._known.add(namespace)
        return namespace
