"""How callers are told that an answer is no new one: a header over HTTP, a response parameter over gRPC."""

import math

from inference_worker.serve.inference import Mark
from inference_worker.serve.messages import ModelInferResponse

NAME = "inference-cache"


def mark(text: str) -> Mark:
    """An answer's mark."""
    response = ModelInferResponse()
    response.parameters[NAME].string_param = text
    # Two messages one after the other are one message with the fields of both (protobuf.dev, "Encoding").
    return Mark(((NAME, text),), response.SerializeToString())


HIT, COALESCED = mark("hit"), mark("coalesced")


def reuse(similarity: float, age: float) -> Mark:
    """The mark of an answer to an earlier frame: how alike the two are, rounded down, and how old the answer is, in seconds."""
    return mark(f"reuse; similarity={math.floor(similarity * 1e4) / 1e4:.4f}; age={age:.1f}")
