"""What callers ask over HTTP/1.1."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.fuzz.wire.http1 import Case, framed
from tests.fuzz.wire.mutation import mutated, mutated_json

if TYPE_CHECKING:
    from random import Random

INFER = b"/v2/models/net/infer"
PLAIN = b'{"id":"7","inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1.5,2]}],"parameters":{"timeout":5000000,"priority":1}}'
_HEAD = (
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}],'
    b'"outputs":[{"name":"y","parameters":{"binary_data":true,"classification":1}}]}'
)
_SHARED = (
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"shared_memory_region":"r1","shared_memory_byte_size":8,'
    b'"shared_memory_offset":0}}],"outputs":[{"name":"y","parameters":{"shared_memory_region":"r2","shared_memory_byte_size":8}}]}'
)
_GETS = (
    *(b"/v2", b"/v2/models", b"/v2/health/live", b"/v2/health/ready", b"/telemetry", b"/v2/models/net", b"/v2/models/net/ready"),
    *(b"/v2/models/net/config", b"/v2/models/net/stats", b"/v2/models/stats", b"/v2/models/net/versions/1", b"/v2/models/other"),
    *(b"/v2/systemsharedmemory/status", b"/v2/cudasharedmemory/status", b"/v2/systemsharedmemory/region/r1/status", b"/tasks"),
)
_METHODS = (b"GET", b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH")
_HEADERS = (
    b"Inference-Header-Content-Length: %d\r\n",
    b"Accept-Encoding: gzip;q=%d, deflate\r\n",
    b"Range: bytes=0-,5-%d\r\n",
    b"X-Any: %d\r\n",
    b"Traceparent: 00-%032d-0000000000000001-01\r\n",
    b"Content-Type: application/json;q=%d\r\n",
    b"Authorization: Bearer %d\r\n",
)
KNOWN = framed(b"POST", INFER, PLAIN, right=b'"data":[1.5,2.0]')
_UNSAFE = bytes(range(33)) + b"\x7f"
_BEYOND = bytes(range(128, 256))


def _path(rng: Random, path: bytes) -> bytes:
    """A path that stays one word of the request line."""
    changed = mutated(rng, path, 2).translate(None, _UNSAFE if rng.random() < 0.005 else _UNSAFE + _BEYOND)
    return b"/" + changed.lstrip(b"/")


def _headers(rng: Random) -> bytes:
    return b"".join(rng.choice(_HEADERS) % rng.choice((0, 1, 7, 150, 1 << 31, rng.randrange(400))) for _ in range(rng.randrange(3)))


def _chunks(rng: Random, body: bytes) -> bytes:
    cut = rng.randrange(len(body) + 1)
    parts = [part for part in (body[:cut], body[cut:]) if part]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def infer(rng: Random) -> Case:
    """An inference in one of its forms."""
    kind = rng.randrange(6)
    if kind == 0:
        body = mutated_json(rng, _HEAD) + struct.pack("<2f", 1.5, 2)
        size = len(_HEAD) if rng.random() < 0.5 else rng.randrange(len(body) + 9)
        return framed(b"POST", INFER, body, b"Inference-Header-Content-Length: %d\r\n" % size)
    if kind == 1:
        coding = rng.choice((b"gzip", b"deflate", b"br", b"identity", b"gzip, gzip"))
        return framed(b"POST", INFER, mutated(rng, gzip.compress(PLAIN, 1), 2), b"Content-Encoding: %s\r\n" % coding)
    if kind == 2:
        body = _chunks(rng, mutated_json(rng, PLAIN))
        return Case(b"POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%s" % (INFER, body))
    return framed(b"POST", INFER, mutated_json(rng, _SHARED if kind == 3 else PLAIN), _headers(rng))


def any_request(rng: Random) -> Case:
    """Half of them infer."""
    if rng.random() < 0.5:
        return infer(rng)
    method = rng.choice(_METHODS)
    body = None if method in (b"GET", b"HEAD") else mutated_json(rng, PLAIN)
    return framed(method, _path(rng, rng.choice(_GETS)), body, _headers(rng))


_REGION = b'{"key":"/fuzz-wire","offset":0,"byte_size":64}'
_LOAD = b'{"parameters":{"unload_dependents":true,"config":"{}"}}'
_REAL = (b"load", b"load", b"load", b"unload")
_REAL_SHARE = 0.001
# Between an unload and the next load it is told so.
KNOWN_OR_UNLOADED = replace(KNOWN, unless="503")


def repository(rng: Random) -> Case:
    """Loads, unloads, indexes, and regions of shared memory. A load that is right is rare: it reads the model."""
    kind = rng.randrange(6)
    if rng.random() < _REAL_SHARE:
        return framed(b"POST", b"/v2/repository/models/net/" + rng.choice(_REAL), b"{}")
    if kind == 0:
        return framed(b"POST", b"/v2/repository/index", mutated_json(rng, b'{"ready":true,"repository_name":"a"}'))
    if kind == 1:
        verb = rng.choice((b"load", b"unload"))
        return framed(b"POST", b"/v2/repository/models/" + _path(rng, b"other")[1:] + b"/" + verb, mutated_json(rng, _LOAD))
    if kind == 2:
        # Cut off, so it is no document and loads nothing.
        return framed(b"POST", b"/v2/repository/models/net/load", b"{" + mutated(rng, _LOAD))
    if kind == 3:
        name = rng.choice((b"r1", b"r2", _path(rng, b"r3")[1:]))
        verb = rng.choice((b"register", b"register", b"unregister", b"status"))
        return framed(b"POST", b"/v2/systemsharedmemory/region/%s/%s" % (name, verb), mutated_json(rng, _REGION))
    if kind == 4:
        return framed(b"POST", INFER, mutated_json(rng, _SHARED))
    return framed(b"GET", rng.choice(_GETS[-4:]), None)


_GROUP = b"/apis/custom.metrics.k8s.io"
_OF_JOB = _GROUP + b"/v1beta2/namespaces/default/inferencejobs.inference.myorg/job/inference_latency_ms"
_METRICS = (
    *(_OF_JOB, _OF_JOB, _OF_JOB.replace(b"/job/", b"/*/"), _OF_JOB + b"?labelSelector=a%3Db,c&metricLabelSelector=d"),
    *(_GROUP, _GROUP + b"/v1beta1", _GROUP + b"/v1beta2", b"/healthz", b"/livez", b"/readyz", b"/apis"),
)
_TOKEN = b"Authorization: Bearer good\r\n"
# aiohttp answers 400 once, and ends the connection, for one that it can't parse and all that it read along with it.
METRIC = replace(framed(b"GET", _OF_JOB, None, _TOKEN, right=b'"kind": "MetricValueList"'), unless="400")


def metrics_api(rng: Random) -> Case:
    """What the HPA's controller asks, and what others would."""
    method = b"GET" if rng.random() < 0.9 else rng.choice(_METHODS)
    path = rng.choice(_METRICS)
    token = _TOKEN if rng.random() < 0.98 else b"Authorization: Bearer %d\r\n" % rng.randrange(1 << 30)
    body = None if method in (b"GET", b"HEAD") else mutated_json(rng, PLAIN)
    return framed(method, _path(rng, path) if rng.random() < 0.7 else path, body, token + _headers_plain(rng))


def _headers_plain(rng: Random) -> bytes:
    return b"X-Remote-User: %d\r\nAccept: a/%d\r\n" % (rng.randrange(99), rng.randrange(99)) if rng.random() < 0.3 else b""


HEALTH = replace(framed(b"GET", b"/healthz", None, right=b"ok\n"), unless="400")


def health(rng: Random) -> Case:
    """Probes and scrapes; a scrape is the dearest, so it is the rarest."""
    path = b"/metrics" if rng.random() < 0.02 else rng.choice((b"/healthz", b"/readyz", b"/nowhere?a=b"))
    method = b"GET" if rng.random() < 0.8 else rng.choice(_METHODS)
    body = None if method in (b"GET", b"HEAD") else mutated_json(rng, PLAIN)
    return framed(method, _path(rng, path) if rng.random() < 0.5 else path, body, _headers_plain(rng))
