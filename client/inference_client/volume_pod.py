"""The helper pod by which files come onto a claim and back: it satisfies the restricted Pod Security Standard. Steps and values."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from inference_client import calls
from inference_client.calls import Exec, Pause, Raw
from inference_client.errors import ClientError, InvalidError, NotFoundError, UnavailableError
from inference_client.steps import AnySteps, Clock, Steps, T

DEFAULT_IMAGE = "busybox:1.37"
CONTAINER = "copy"
MOUNT = PurePosixPath("/data")
# As workers run, so that they can read what the pod writes, and it what they have written.
_USER = 65532
_POLL = Pause(0.5)
_LIST_BYTES = 1 << 20
# What a kubelet says of a container that only another pod can cure; all else may pass.
_FINAL = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)


def manifest(name: str, claim: str, image: str, *, component: str, life_seconds: int, read_only: bool) -> Raw:
    """The pod; it ends by itself should nobody delete it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "kubectl-inference", "app.kubernetes.io/component": component},
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "activeDeadlineSeconds": life_seconds,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "fsGroup": _USER,
                # Else the kubelet walks through the whole volume first.
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": CONTAINER,
                    "image": image,
                    "command": ["sleep", str(life_seconds)],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
                    # Read-only by the mount alone: a claim that is read-only as a whole isn't attached beside a worker that writes.
                    "volumeMounts": [{"name": "data", "mountPath": str(MOUNT), "readOnly": read_only}],
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    }


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder on a claim, read by a pod that runs two programs, `cat` and `ls`, and no shell."""

    namespace: str
    pod: str
    folder: PurePosixPath
    timeout_seconds: float

    def read(self, name: str, sink: Callable[[bytes], None]) -> AnySteps[None]:
        """Give a file's bytes to `sink`. Raises ClientError with the program's words."""
        yield self._run(("cat", str(self.folder / name)), sink)

    def names(self, folder: str) -> AnySteps[tuple[str, ...]]:
        """The names in a folder; one with an end of line in it is two that nobody writes."""
        found = Bounded(_LIST_BYTES, folder)
        yield self._run(("ls", "-1", str(self.folder / folder)), found)
        return tuple(found.bytes.decode(errors="replace").splitlines())

    def _run(self, command: tuple[str, ...], sink: Callable[[bytes], None]) -> Exec:
        return Exec(self.namespace, self.pod, command, sink, self.timeout_seconds)


class Bounded:
    """A sink that keeps what it is given, up to a limit."""

    def __init__(self, limit: int, what: str) -> None:
        self._data = bytearray()
        self._limit = limit
        self._what = what

    def __call__(self, data: bytes) -> None:
        """Raise ClientError for more bytes than the limit."""
        self._data += data
        if len(self._data) > self._limit:
            raise ClientError(f"{self._what} has more than {self._limit} bytes")

    @property
    def bytes(self) -> bytes:
        """All of it."""
        return bytes(self._data)


def place(uri: str) -> tuple[str, PurePosixPath]:
    """The claim and the folder in the pod of `pvc://CLAIM/PATH`. Raises InvalidError."""
    claim, _, path = uri.removeprefix("pvc://").partition("/")
    inside = PurePosixPath(path)
    if not claim or inside.is_absolute() or ".." in inside.parts or "\0" in path:
        raise InvalidError(f"{uri!r} is no folder on a claim")
    return claim, MOUNT / inside


def claimed(namespace: str, claim: str) -> Steps[None]:
    """Raise NotFoundError for a claim that isn't there: a pod would wait for it without end."""
    try:
        yield calls.get(calls.CLAIMS, namespace, claim)
    except NotFoundError as error:
        raise NotFoundError(f"namespace {namespace} has no PersistentVolumeClaim {claim}: create it first") from error


def with_pod(namespace: str, made: Raw, give_up: float, clock: Clock, work: Callable[[str], AnySteps[T]]) -> AnySteps[T]:
    """Do work with a running pod, which is deleted at the end, also of work that is interrupted."""
    name = str(made["metadata"]["name"])
    yield calls.create(calls.PODS, namespace, made)
    try:
        yield from started(namespace, name, give_up, clock)
        return (yield from work(name))
    finally:
        try:
            yield calls.delete(calls.PODS, namespace, name, grace_seconds=0)
        except NotFoundError:
            pass


def new_name(component: str) -> str:
    """A name that no other helper pod has."""
    return f"inference-{component}-{secrets.token_hex(4)}"


def started(namespace: str, name: str, give_up: float, clock: Clock) -> Steps[None]:
    """Wait until a pod is ready. Raises ClientError as soon as it never will be, UnavailableError after the time."""
    while True:
        found = yield calls.get(calls.PODS, namespace, name)
        status = found.get("status", {})
        if any(one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions", ())):
            return
        waiting = [one.get("state", {}).get("waiting") or {} for one in status.get("containerStatuses", ())]
        unscheduled = [
            one for one in status.get("conditions", ()) if one.get("type") == "PodScheduled" and one.get("status") == "False"
        ]
        told = next((f"{one['reason']}: {one.get('message', '')}" for one in (*waiting, *unscheduled) if one.get("reason")), "")
        if any(one.get("reason") in _FINAL for one in waiting):
            raise ClientError(f"the helper pod can't start: {told}; name an image that the cluster has and that runs without root")
        phase = status.get("phase", "Pending")
        if clock() > give_up or phase in {"Failed", "Succeeded"}:
            raise UnavailableError(f"the helper pod {name} has not started: {told or status.get('message') or phase}")
        yield _POLL
