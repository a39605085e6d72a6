"""The operator's key for tasks on warm workers, once it is read."""

from inference_operator.errors import RetryableError
from inference_operator.kube.key_secret import KeySecret
from inference_operator.kube.ports import KubeClient
from inference_operator.state.objects import Key
from inference_operator.warmpools.credentials import TaskKey

_FIELD = "task-key"


class TaskKeySecret:
    """Makes workers' tokens, once it is open."""

    def __init__(self, kube: KubeClient, namespace: str, name: str) -> None:
        self._secret = KeySecret(kube, namespace, name, _FIELD)
        self._key: TaskKey | None = None

    async def open(self) -> None:
        """Read the key; make it where the Secret is still empty. Raises OperatorError."""
        self._key = TaskKey(await self._secret.read())

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
