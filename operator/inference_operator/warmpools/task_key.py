"""The operator's key, kept in a Secret of its own namespace, so that every replica and every restart has the same one.

Whoever installs the operator makes the Secret, empty: the right to create one can't be bound to a name.
"""

import base64
import secrets

from inference_operator.errors import ConflictError, NotFoundError, RetryableError
from inference_operator.kube.ports import KubeClient, Raw
from inference_operator.state.objects import Key
from inference_operator.warmpools.credentials import TaskKey

_FIELD = "task-key"


class TaskKeySecret:
    """Makes workers' tokens, once it is open."""

    def __init__(self, kube: KubeClient, namespace: str, name: str) -> None:
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        self._name = name
        self._key: TaskKey | None = None

    async def open(self) -> None:
        """Read the key; make it where the Secret is still empty. Raises OperatorError."""
        try:
            found = await self._kube.get(self._path)
            if not found.get("data"):
                found = await self._fill(found)
        except NotFoundError as error:
            raise RetryableError(f"there is no Secret {self._name}; an upgrade of the release makes it") from error
        text = (found.get("data") or {}).get(_FIELD)
        try:
            key = base64.b64decode(text or "", validate=True)
        except ValueError:
            key = b""
        if not key:
            raise RetryableError(f"Secret {self._name} has no {_FIELD}, or a damaged one; take its data away and a new one is made")
        self._key = TaskKey(key)

    async def _fill(self, empty: Raw) -> Raw:
        try:
            data = {_FIELD: base64.b64encode(secrets.token_bytes(32)).decode()}
            return await self._kube.replace(self._path, {**empty, "data": data})
        except ConflictError:
            # Another replica was quicker.
            return await self._kube.get(self._path)

    def token(self, pod: Key) -> str:
        """The bearer token of one worker pod."""
        return self._opened.token(pod)

    def digest(self, pod: Key) -> str:
        """What that worker is told."""
        return self._opened.digest(pod)

    @property
    def _opened(self) -> TaskKey:
        if self._key is None:
            raise RetryableError("the key for warm workers is not read yet")
        return self._key
