"""Streams into pods by the API server: forwarded ports, and commands with their input. Only what `kubernetes` has of them."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from kubernetes import client as kubernetes_client
from kubernetes import stream
from kubernetes.client.exceptions import ApiException

from inference_client import pod_exec
from inference_client.client import Client
from inference_client.errors import ClientError, UnavailableError, refusal

_CHUNK = 1 << 16
_ERROR_CHANNEL = 3
# A digest, or an error. What answers is an image of somebody's choice, in a pod that others may reach.
_MOST_WORDS = 1 << 20


@contextmanager
def forwarded(client: Client, namespace: str, pod: str, port: int) -> Iterator[str]:
    """An address on this machine whose connections lead to a port of a pod, as long as the block runs."""
    core = kubernetes_client.CoreV1Api(client.transport.api)
    _forget_resets()
    try:
        # Once in vain: who may not do it is told so here, rather than by a connection that ends.
        stream.portforward(core.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(port)).close()
    except ApiException as error:
        raise refusal(error.status or 503, str(error.body or error.reason).encode()) from error
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(core, listener, namespace, pod, port), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def _forget_resets() -> None:
    """Threads of `kubernetes` raise when the pod ends a connection first, which is an ordinary end."""
    before = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if not issubclass(arguments.exc_type, OSError):
            before(arguments)

    threading.excepthook = hook


def _accept(core: Any, listener: socket.socket, namespace: str, pod: str, port: int) -> None:
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            # The block has ended.
            return
        try:
            made = stream.portforward(core.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(port))
        except (ApiException, OSError):
            # Whoever has connected sees the end of the connection, and says so.
            near.close()
            continue
        far = made.socket(port)
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: Any, target: Any) -> None:
    try:
        while data := source.recv(_CHUNK):
            target.sendall(data)
    except OSError:
        pass
    finally:
        for one in (source, target):
            one.close()


def run_in_pod(
    client: Client,
    namespace: str,
    pod: str,
    command: list[str],
    *,
    stdin: BinaryIO | None = None,
    timeout: float = 60.0,
    on_sent: Callable[[int], None] = lambda _: None,
) -> str:
    """Run a command in a pod's first container; returns its output. Raises ClientError with its errors when it fails."""
    give_up = time.monotonic() + timeout
    channel = pod_exec.started(client.transport.api, namespace, pod, command, stdin=stdin is not None)
    try:
        while stdin is not None and channel.is_open() and (data := stdin.read(_CHUNK)):
            channel.write_stdin(data)
            on_sent(len(data))
        while channel.is_open():
            channel.update(timeout=1)
            if time.monotonic() > give_up:
                raise UnavailableError(f"{command[0]} in pod {pod} has not ended after {timeout:g} s")
            if len(channel.peek_stdout()) + len(channel.peek_stderr()) > _MOST_WORDS:
                raise ClientError(f"{command[0]} in pod {pod} says more than {_MOST_WORDS} bytes")
        out, errors = channel.read_stdout(), channel.read_stderr()
        verdict = channel.read_channel(_ERROR_CHANNEL)
        pod_exec.check(bytes(verdict).decode(errors="replace"), bytes(errors).decode(errors="replace"), command[0], pod)
    except OSError as error:
        raise UnavailableError(f"the connection to pod {pod} broke: {error}") from error
    finally:
        channel.close()
    return bytes(out).decode(errors="replace")
