"""What callers ask over gRPC: the worker, and KEDA the operator's scaler."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING, Any

from inference_operator.autoscaling.keda import messages as keda
from inference_worker.serve.grpc_reflection import REFLECTIONS
from inference_worker.serve.messages import SERVICE, SMALL_METHODS, ModelInferRequest
from tests.fuzz.wire.http2 import Call
from tests.fuzz.wire.mutation import mutated
from tests.process.wire2 import message

if TYPE_CHECKING:
    from random import Random

_X = struct.pack("<2f", 1.5, 2)


def _request(*, shared: bool = False, typed: bool = False) -> bytes:
    made = ModelInferRequest(model_name="net", id="7")
    x: Any = made.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    if shared:
        x.parameters["shared_memory_region"].string_param = "r1"
        x.parameters["shared_memory_byte_size"].int64_param = 8
    elif typed:
        x.contents.fp32_contents.extend([1.5, 2])
    else:
        made.raw_input_contents.append(_X)
    made.outputs.add(name="y")
    return bytes(made.SerializeToString())


RAW, TYPED, SHARED = _request(), _request(typed=True), _request(shared=True)
_ROOT = f"/{SERVICE}/".encode()
KNOWN = Call(_ROOT + b"ModelInfer", message(RAW), right=_X)
_HEADERS = (
    *((b"grpc-timeout", value) for value in (b"5S", b"0n", b"99999999H", b"1x", b"")),
    *((b"grpc-encoding", value) for value in (b"gzip", b"deflate", b"identity", b"br")),
    *(
        (b"grpc-accept-encoding", b"gzip"),
        (b"x-any", b"\xff\x80"),
        (b"x-any-bin", b"AA=="),
        (b"cookie", b"a=b"),
        (b"content-length", b"5"),
    ),
    *((b"X-Upper", b"1"), (b":path", b"/again"), (b"connection", b"close"), (b"", b""), (b"user-agent", b"x" * 300)),
)


def _headers(rng: Random) -> tuple[tuple[bytes, bytes], ...]:
    return tuple(rng.choice(_HEADERS) for _ in range(1 if rng.random() < 0.25 else 0))


def _framed(rng: Random, payload: bytes) -> bytes:
    """A message, mostly with its true length."""
    if rng.random() < 0.9:
        return message(payload)
    return message(payload, flag=rng.choice((0, 1, 2, 255)), length=rng.choice((0, len(payload) + 1, 1 << 26, (1 << 32) - 1)))


def worker(rng: Random) -> Call:
    """An inference, a stream of them, or one of the small methods."""
    kind = rng.randrange(8)
    if kind == 0:
        body = b"".join(message(mutated(rng, rng.choice((RAW, TYPED, SHARED)))) for _ in range(rng.randint(0, 3)))
        return Call(_ROOT + b"ModelStreamInfer", body, _headers(rng))
    if kind == 1:
        method = rng.choice(SMALL_METHODS).encode()
        if method == b"RepositoryModelUnload":
            method = b"RepositoryIndex"
        payload = b"\x12\x05other" if method == b"RepositoryModelLoad" else mutated(rng, b"\x0a\x03net\x12\x011")
        return Call(_ROOT + mutated(rng, method, 1), _framed(rng, payload), _headers(rng))
    if kind == 2:
        reflected = rng.choice(REFLECTIONS).path.encode()
        return Call(reflected, _framed(rng, mutated(rng, b"\x22\x1einference.GRPCInferenceService")), _headers(rng))
    if kind == 3:
        packed = mutated(rng, gzip.compress(RAW, 1), 2)
        return Call(_ROOT + b"ModelInfer", message(packed, flag=1), ((b"grpc-encoding", b"gzip"),))
    return Call(_ROOT + b"ModelInfer", _framed(rng, mutated(rng, rng.choice((RAW, TYPED, SHARED)))), _headers(rng))


_REFERENCE = keda.ScaledObjectRef(name="scaled", namespace="default", scalerMetadata={"job": "job"})
_ASKED = {
    b"IsActive": _REFERENCE.SerializeToString(),
    b"GetMetricSpec": _REFERENCE.SerializeToString(),
    b"GetMetrics": keda.GetMetricsRequest(scaledObjectRef=_REFERENCE, metricName="any").SerializeToString(),
}
_KEDA = f"/{keda.SERVICE}/".encode()
SCALED = Call(_KEDA + b"GetMetricSpec", message(_ASKED[b"GetMetricSpec"]), right=b"inference_desired_replicas")
# What ends a connection of h2 as a whole stays for the last request of one.
_NOT_ASCII = bytes(range(128, 256))
_MILD = _HEADERS[:13]


def scaler(rng: Random) -> Call:
    """A question of KEDA's."""
    method, payload = rng.choice(list(_ASKED.items()))
    headers = (rng.choice(_MILD),) if rng.random() < 0.1 else ()
    body = message(mutated(rng, payload)) if rng.random() < 0.97 else _framed(rng, payload)
    path = mutated(rng, method, 1).translate(None, _NOT_ASCII) if rng.random() < 0.1 else method
    return Call(_KEDA + path, body, headers)
