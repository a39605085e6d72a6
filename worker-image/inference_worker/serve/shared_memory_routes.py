"""Shared memory over HTTP: how callers register regions, and see which there are (Triton's extension, by its paths and documents).

Regions of CUDA's memory can't be registered. Clients ask to forget all of them before they begin, so that much is answered.
"""

import re
from http import HTTPStatus
from typing import Any

import orjson

from inference_worker.errors import RequestError
from inference_worker.serve.ask import bad
from inference_worker.serve.http_messages import Payload, Request, Response
from inference_worker.serve.message_size import small
from inference_worker.serve.shared_memory import SharedMemory

PATH = re.compile("/v2/(?P<kind>system|cuda)sharedmemory(?:/region/(?P<name>.+))?/(?P<verb>status|register|unregister)", re.DOTALL)
NO_CUDA = "memory of CUDA can't be registered here; use system shared memory, or send the tensors"


def answer(shared: SharedMemory, request: Request, asked: re.Match[str]) -> Response:
    """The answer to a request whose path PATH has matched. Raises RequestError."""
    name, verb, system = asked["name"] or "", asked["verb"], asked["kind"] == "system"
    wanted = ("GET", "HEAD") if verb == "status" else ("POST",)
    if request.method not in wanted:
        raise RequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"{verb} wants {wanted[0]}")
    if verb == "status":
        return Response(HTTPStatus.OK, orjson.dumps(shared.status(name) if system else []))
    if verb == "unregister":
        if system:
            shared.unregister(name)
    elif system:
        wishes = _wishes(request.body)
        shared.register(name, wishes["key"], wishes.get("offset", 0), wishes.get("byte_size"))
    else:
        raise bad(NO_CUDA)
    return Response(HTTPStatus.OK)


def _wishes(body: Payload) -> dict[str, Any]:
    try:
        found = orjson.loads(small(body))
    except orjson.JSONDecodeError as error:
        raise bad(f"the request is no JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("key"), str):
        raise bad("the request must be an object with key, offset and byte_size")
    return found
