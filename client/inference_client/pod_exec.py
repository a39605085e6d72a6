"""Programs in pods by the API server: how one is started, and what it says, whoever carries its words."""

import json
import time
from typing import TYPE_CHECKING, Any

from inference_client.calls import Exec
from inference_client.errors import ClientError, UnavailableError, refusal

if TYPE_CHECKING:
    from kubernetes import client

PROTOCOL = "v4.channel.k8s.io"
_STDOUT, _STDERR, _VERDICT = 1, 2, 3
# What answers is an image of somebody's choice, in a pod that others may reach.
_MOST_WORDS = 1 << 16
# A socket that is silent for so long is looked at anew, for the time that is left.
_LOOK_SECONDS = 5.0


class Heard:
    """Takes a program's messages, each a channel's number and bytes: output goes to the sink, errors and the verdict are kept."""

    def __init__(self, program: Exec) -> None:
        self._program = program
        self._kept = {_STDERR: bytearray(), _VERDICT: bytearray()}

    def __call__(self, message: bytes) -> None:
        """Take a message. Raises what the sink raises."""
        if not message:
            return
        if message[0] == _STDOUT:
            if len(message) > 1:
                self._program.sink(message[1:])
            return
        if (kept := self._kept.get(message[0])) is not None:
            kept += message[1 : 1 + _MOST_WORDS - len(kept)]

    def check(self) -> None:
        """Raise ClientError unless the program has ended well."""
        verdict, errors = self._kept[_VERDICT].decode(errors="replace"), self._kept[_STDERR].decode(errors="replace")
        check(verdict, errors, self._program.command[0], self._program.pod)

    def broken(self, error: Exception) -> ClientError:
        """The error for a connection that broke, or took too long."""
        program = self._program
        if isinstance(error, TimeoutError):
            return UnavailableError(f"{program.command[0]} in pod {program.pod} has not ended after {program.timeout_seconds:g} s")
        return UnavailableError(f"the connection to pod {program.pod} broke: {error}")


def check(verdict: str, errors: str, command: str, pod: str) -> None:
    """Raise ClientError for a verdict that is no success, with the program's own errors."""
    try:
        status = json.loads(verdict) if verdict else {}
    except (ValueError, RecursionError):
        status = {}
    told = status if isinstance(status, dict) else {}
    if told.get("status") == "Success":
        return
    raise ClientError(f"{command} in pod {pod} failed: {errors.strip() or told.get('message') or 'the connection broke'}")


def web_socket(url: str) -> str:
    """The address of a web socket, for an http(s) one."""
    return f"ws{url.removeprefix('http')}"


def started(api: "client.ApiClient", namespace: str, pod: str, command: list[str], *, stdin: bool) -> Any:
    """The stream of a program that begins to run. Raises ClientError."""
    from kubernetes import client as kubernetes_client
    from kubernetes import stream
    from kubernetes.client.exceptions import ApiException

    core = kubernetes_client.CoreV1Api(api)
    try:
        return stream.stream(
            core.connect_get_namespaced_pod_exec,
            pod,
            namespace,
            command=command,
            stdin=stdin,
            stdout=True,
            stderr=True,
            binary=True,
            _preload_content=False,
        )
    except ApiException as error:
        raise refusal(error.status or 503, str(error.body or error).encode()) from error


def read(api: "client.ApiClient", program: Exec) -> None:
    """Run a program in a pod; its sink gets what it prints. Raises ClientError, with its errors when it fails."""
    import websocket

    give_up = time.monotonic() + program.timeout_seconds
    channel = started(api, program.namespace, program.pod, list(program.command), stdin=False)
    heard = Heard(program)
    try:
        # By the socket itself: the client of `kubernetes` keeps all that it has read in memory.
        while (message := _message(channel.sock, give_up, websocket)) is not None:
            heard(message)
    except (OSError, websocket.WebSocketException) as error:
        raise heard.broken(error) from error
    finally:
        channel.close()
    heard.check()


def _message(socket: Any, give_up: float, websocket: Any) -> bytes | None:
    """The next message; none at the end. Raises TimeoutError, OSError, WebSocketException."""
    while (left := give_up - time.monotonic()) > 0:
        socket.settimeout(min(left, _LOOK_SECONDS))
        try:
            code, frame = socket.recv_data_frame(True)
        except websocket.WebSocketTimeoutException:
            continue
        if code == websocket.ABNF.OPCODE_CLOSE:
            return None
        if code in (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT):
            return bytes(frame.data)
    raise TimeoutError
