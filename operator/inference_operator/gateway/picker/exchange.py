"""What Envoy is answered in the course of one request: the Endpoint Picker Protocol of the Gateway API Inference Extension.

An exchange decides once, as soon as it knows the model: from the headers, or from the first message of a gRPC request. It changes
nothing else. In the full-duplex mode whatever Envoy sends has to be sent back, in all others it goes on where it is.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from inference_operator.gateway.hold import Refusal
from inference_operator.gateway.picker import messages
from inference_operator.gateway.picker.asked import InMessage, Target, of_headers, of_message

DESTINATION = "x-gateway-destination-endpoint"
DESTINATION_METADATA = "envoy.lb"
SUBSET = "x-gateway-destination-endpoint-subset"
SUBSET_METADATA = "envoy.lb.subset_hint"
# The number of Envoy's enum.
_OVERWRITE = 2
_GRPC_STATUS = {400: 3, 404: 5, 429: 8, 501: 12, 503: 14}
_NO_MESSAGE = "name the model in the metadata inference-model: the gateway does not show the picker what is in requests"

# The endpoint for a request by its target, headers and subset; or why there is none.
Decide = Callable[[Target, Mapping[str, str], frozenset[str] | None], str | Refusal]


class Exchange:
    """One request. What was heard last may wait for more; all else is answered in its order."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._headers: Mapping[str, str] = {}
        self._subset: frozenset[str] | None = None
        self._request_mode = self._response_mode = 0
        # The model's name is yet to be read; what has been read so far, and sent back so far of none.
        self._waits_for: InMessage | None = None
        self._read = b""

    def hear(self, heard: Any) -> Iterator[Any]:
        """The answers to a ProcessingRequest. After an immediate response nothing more comes."""
        if heard.HasField("protocol_config"):
            self._request_mode = heard.protocol_config.request_body_mode
            self._response_mode = heard.protocol_config.response_body_mode
        if heard.HasField("request_headers"):
            yield from self._request_headers(heard)
        elif heard.HasField("request_body"):
            yield from self._request_body(heard.request_body)
        elif heard.HasField("request_trailers"):
            yield from self._request_trailers()
        elif heard.HasField("response_headers"):
            yield messages.ProcessingResponse(response_headers={})
        elif heard.HasField("response_body"):
            yield messages.ProcessingResponse(response_body=_passed(heard.response_body, self._response_mode))
        elif heard.HasField("response_trailers"):
            yield messages.ProcessingResponse(response_trailers={})

    def _request_headers(self, heard: Any) -> Iterator[Any]:
        self._headers, self._subset = _headers(heard.request_headers), _subset(heard)
        target = of_headers(self._headers)
        if not isinstance(target, InMessage):
            yield _decided("request_headers", self._endpoint(target))
        elif heard.request_headers.end_of_stream or self._request_mode not in (messages.BUFFERED, messages.FULL_DUPLEX):
            yield _immediate(Refusal(400, _NO_MESSAGE))
        else:
            self._waits_for = target
            if self._request_mode == messages.BUFFERED:
                yield messages.ProcessingResponse(request_headers={})

    def _request_body(self, body: Any) -> Iterator[Any]:
        if self._waits_for is None:
            yield messages.ProcessingResponse(request_body=_passed(body, self._request_mode))
            return
        self._read += body.body
        target = of_message(self._waits_for, self._read, whole=body.end_of_stream)
        if target is None:
            return
        self._waits_for, decided = None, self._endpoint(target)
        if self._request_mode == messages.BUFFERED:
            yield _decided("request_body", decided)
            return
        yield _decided("request_headers", decided)
        if not isinstance(decided, Refusal):
            streamed = {"body": self._read, "end_of_stream": body.end_of_stream}
            yield messages.ProcessingResponse(request_body={"response": {"body_mutation": {"streamed_response": streamed}}})
        self._read = b""

    def _request_trailers(self) -> Iterator[Any]:
        if self._waits_for is None:
            yield messages.ProcessingResponse(request_trailers={})
        else:
            yield _immediate(Refusal(400, _NO_MESSAGE))

    def _endpoint(self, target: Target | Refusal) -> str | Refusal:
        return target if isinstance(target, Refusal) else self._decide(target, self._headers, self._subset)


def _decided(kind: str, decided: str | Refusal) -> Any:
    """What tells a gateway where to: a header and metadata that say the same."""
    if isinstance(decided, Refusal):
        return _immediate(decided)
    said = messages.ProcessingResponse(**{kind: {"response": {"header_mutation": _set({DESTINATION: decided})}}})
    said.dynamic_metadata.fields[DESTINATION_METADATA].struct_value.fields[DESTINATION].string_value = decided
    return said


def _immediate(refusal: Refusal) -> Any:
    retry = {"retry-after": str(refusal.retry_seconds)} if refusal.status in (429, 503) else {}
    answer = {
        "status": {"code": refusal.status},
        "headers": _set(retry),
        "body": refusal.text.encode(),
        "grpc_status": {"status": _GRPC_STATUS.get(refusal.status, 2)},
        "details": "endpoint_picker",
    }
    return messages.ProcessingResponse(immediate_response=answer)


def _set(headers: Mapping[str, str]) -> dict[str, Any]:
    options = [{"header": {"key": k, "raw_value": v.encode()}, "append_action": _OVERWRITE} for k, v in headers.items()]
    return {"set_headers": options}


def _passed(body: Any, mode: int) -> dict[str, Any]:
    """What lets a part of a body go on as it is."""
    if mode != messages.FULL_DUPLEX:
        return {}
    streamed = {
        "body": body.body,
        "end_of_stream": body.end_of_stream,
        "end_of_stream_without_message": body.end_of_stream_without_message,
        "grpc_message_compressed": body.grpc_message_compressed,
    }
    return {"response": {"body_mutation": {"streamed_response": streamed}}}


def _headers(heard: Any) -> dict[str, str]:
    return {one.key.lower(): one.value or one.raw_value.decode(errors="replace") for one in heard.headers.headers}


def _subset(heard: Any) -> frozenset[str] | None:
    """The endpoints among which the gateway wants one picked; None where it leaves the choice."""
    for entry in heard.metadata_context.filter_metadata:
        if entry.key == SUBSET_METADATA and SUBSET in entry.value.fields:
            said = entry.value.fields[SUBSET]
            listed = [one.string_value for one in said.list_value.values] or said.string_value.split(",")
            return frozenset(one.strip() for one in listed if one.strip())
    return None
