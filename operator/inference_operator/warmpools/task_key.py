"""The operator's key, kept in a Secret of its own namespace, so that every replica and every restart has the same one."""

import base64
import secrets

from inference_operator.errors import ConflictError, NotFoundError, RetryableError
from inference_operator.kube.ports import KubeClient
from inference_operator.state.objects import Key
from inference_operator.warmpools.credentials import TaskKey

_FIELD = "task-key"


class TaskKeySecret:
    """Makes workers' tokens, once it is open."""

    def __init__(self, kube: KubeClient, namespace: str, name: str) -> None:
        self._kube = kube
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._name = name
        self._key: TaskKey | None = None

    async def open(self) -> None:
        """Read the key; make one where there is none yet. Raises OperatorError."""
        try:
            found = await self._kube.get(f"{self._secrets}/{self._name}")
        except NotFoundError:
            data = {_FIELD: base64.b64encode(secrets.token_bytes(32)).decode()}
            manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": self._name}, "data": data}
            try:
                found = await self._kube.create(self._secrets, manifest)
            except ConflictError:
                # Another replica was quicker.
                found = await self._kube.get(f"{self._secrets}/{self._name}")
        text = (found.get("data") or {}).get(_FIELD)
        try:
            key = base64.b64decode(text or "", validate=True)
        except ValueError:
            key = b""
        if not key:
            raise RetryableError(f"secret {self._name} has no {_FIELD}, or a damaged one; delete it and a new one is made")
        self._key = TaskKey(key)

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
