"""The ways: each takes an array to a model and brings the answer as an array, as a caller has them."""

import json
import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from tritonclient.utils import shared_memory as shm

Way = Callable[[np.ndarray], np.ndarray]
_UNLIMITED = 2**31 - 1


@contextmanager
def http(port: int) -> Iterator[Way]:
    """By tritonclient over HTTP, with binary tensors."""
    with over_http.InferenceServerClient(f"127.0.0.1:{port}", network_timeout=60.0, connection_timeout=60.0) as client:
        yield lambda array: _infer(client, over_http, array)


@contextmanager
def grpc(port: int) -> Iterator[Way]:
    """By tritonclient over gRPC."""
    options = [("grpc.max_send_message_length", _UNLIMITED), ("grpc.max_receive_message_length", _UNLIMITED)]
    with over_grpc.InferenceServerClient(f"127.0.0.1:{port}", channel_args=options) as client:
        yield lambda array: _infer(client, over_grpc, array)


def _infer(client: Any, kind: Any, array: np.ndarray) -> np.ndarray:
    given = kind.InferInput("x", array.shape, "FP32")
    given.set_data_from_numpy(array)
    answer: np.ndarray = client.infer("net", [given], outputs=[kind.InferRequestedOutput("y")]).as_numpy("y")
    return answer


@contextmanager
def memory(port: int, most: int) -> Iterator[Way]:
    """By tritonclient over HTTP, the tensors in shared memory: written from an array, and read into one."""
    name = f"tensors-{uuid.uuid4()}"
    region = shm.create_shared_memory_region(name, f"/{name}", 2 * most)
    try:
        with over_http.InferenceServerClient(f"127.0.0.1:{port}", network_timeout=60.0) as client:
            client.register_system_shared_memory(name, f"/{name}", 2 * most)

            def ask(array: np.ndarray) -> np.ndarray:
                shm.set_shared_memory_region(region, [array])
                given, wanted = over_http.InferInput("x", array.shape, "FP32"), over_http.InferRequestedOutput("y")
                given.set_shared_memory(name, array.nbytes)
                wanted.set_shared_memory(name, array.nbytes, offset=most)
                client.infer("net", [given], outputs=[wanted])
                # The next answer comes to the same place: whoever keeps this one has to take it.
                answer: np.ndarray = shm.get_contents_as_numpy(region, np.float32, array.shape, offset=most).copy()
                return answer

            yield ask
            client.unregister_system_shared_memory(name)
    finally:
        shm.destroy_shared_memory_region(region)


@contextmanager
def lean(port: int) -> Iterator[Way]:
    """HTTP as a program may write it that avoids copies: the array's memory to the socket, the answer into an array."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield lambda array: _post(connection, array)


def _post(connection: socket.socket, array: np.ndarray) -> np.ndarray:
    tensor = {"name": "x", "datatype": "FP32", "shape": array.shape, "parameters": {"binary_data_size": array.nbytes}}
    said = json.dumps({"inputs": [tensor], "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
    head = (
        f"POST /v2/models/net/infer HTTP/1.1\r\nHost: net\r\nInference-Header-Content-Length: {len(said)}\r\n"
        f"Content-Length: {len(said) + array.nbytes}\r\n\r\n"
    ).encode()
    connection.sendall(head + said)
    connection.sendall(array.data.cast("B"))
    got = b""
    while (end := got.find(b"\r\n\r\n")) < 0:
        got += connection.recv(16384)
    lines = got[:end].decode().lower().split("\r\n")
    assert lines[0].startswith("http/1.1 200"), got
    fields = dict(line.split(": ", 1) for line in lines[1:])
    begins = end + 4 + int(fields["inference-header-content-length"])
    answer = np.empty(array.shape, np.float32)
    into, have = answer.data.cast("B"), len(got) - begins
    # What is before the tensor is short and comes in the first piece.
    assert have >= 0
    into[:have] = got[begins:]
    while have < len(into):
        have += connection.recv_into(into[have:])
    return answer


@contextmanager
def flight(port: int, packages: Path, *, kept: bool) -> Iterator[Way]:
    """Arrow Flight: one stream that is `kept` for all requests, or one for each. An answer lies where the message came."""
    if str(packages) not in sys.path:
        sys.path.append(str(packages))
    import pyarrow as pa
    import pyarrow.flight

    schema = pa.schema([("x", pa.float32())])
    with pyarrow.flight.FlightClient(f"grpc://127.0.0.1:{port}") as client:
        descriptor = pyarrow.flight.FlightDescriptor.for_command(b"net")

        def opened() -> Any:
            writer, reader = client.do_exchange(descriptor)
            writer.begin(schema)
            return writer, reader

        def asked(writer: Any, reader: Any, array: np.ndarray) -> np.ndarray:
            writer.write_batch(pa.RecordBatch.from_arrays([pa.array(array.reshape(-1))], schema=schema))
            answer: np.ndarray = reader.read_chunk().data.column(0).to_numpy(zero_copy_only=True).reshape(array.shape)
            return answer

        def alone(array: np.ndarray) -> np.ndarray:
            writer, reader = opened()
            with writer:
                answer = asked(writer, reader, array)
                writer.done_writing()
            return answer

        if not kept:
            yield alone
            return
        writer, reader = opened()
        with writer:
            yield lambda array: asked(writer, reader, array)
            writer.done_writing()
