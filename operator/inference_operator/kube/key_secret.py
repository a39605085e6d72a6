"""A key of the operator's, kept in a Secret of its own namespace, so that every replica and every restart has the same one.

Whoever installs the operator makes the Secret, empty: the right to create one can't be bound to a name.
"""

import base64
import secrets

from inference_operator.errors import ConflictError, NotFoundError, RetryableError
from inference_operator.kube.ports import KubeClient, Raw


class KeySecret:
    """Reads a key, and makes it where there is none."""

    def __init__(self, kube: KubeClient, namespace: str, name: str, field: str) -> None:
        """`field` is the key's name in the Secret."""
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        self._name = name
        self._field = field

    async def read(self) -> bytes:
        """Return the key; make it where the Secret is still empty. Raises OperatorError."""
        try:
            found = await self._kube.get(self._path)
            if not found.get("data"):
                found = await self._fill(found)
        except NotFoundError as error:
            raise RetryableError(f"there is no Secret {self._name}; an upgrade of the release makes it") from error
        text = (found.get("data") or {}).get(self._field)
        try:
            key = base64.b64decode(text or "", validate=True)
        except ValueError:
            key = b""
        if not key:
            raise RetryableError(
                f"Secret {self._name} has no {self._field}, or a damaged one; take its data away and a new one is made"
            )
        return key

    async def _fill(self, empty: Raw) -> Raw:
        try:
            data = {self._field: base64.b64encode(secrets.token_bytes(32)).decode()}
            return await self._kube.replace(self._path, {**empty, "data": data})
        except ConflictError:
            # Another replica was quicker.
            return await self._kube.get(self._path)
