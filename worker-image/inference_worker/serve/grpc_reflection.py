"""gRPC's server reflection (grpc/grpc, doc/server-reflection.md), by which grpcurl and others learn what there is to call.

Both versions have the same messages under two names; clients that are older ask for the first.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from google.protobuf.message import DecodeError

from inference_worker.errors import RequestError
from inference_worker.serve import grpc_health
from inference_worker.serve.ask import bad
from inference_worker.serve.grpc_calls import Reply
from inference_worker.serve.http_messages import Payload
from inference_worker.serve.inference import Arrival
from inference_worker.serve.message_tables import POOL, Table
from inference_worker.serve.messages import SERVICE as INFERENCE_SERVICE

_LIMIT_BYTES = 64 << 10
_NOT_FOUND, _INVALID = 5, 3
_PACKAGES = {version: f"grpc.reflection.{version}" for version in ("v1", "v1alpha")}
SERVICES = (INFERENCE_SERVICE, grpc_health.SERVICE, *(f"{package}.ServerReflection" for package in _PACKAGES.values()))

_MESSAGES = """
ServerReflectionRequest: host 1 string, file_by_filename 3 |string, file_containing_symbol 4 |string,
  file_containing_extension 5 |ExtensionRequest, all_extension_numbers_of_type 6 |string, list_services 7 |string
ExtensionRequest: containing_type 1 string, extension_number 2 int32
ServerReflectionResponse: valid_host 1 string, original_request 2 ServerReflectionRequest,
  file_descriptor_response 4 |FileDescriptorResponse, all_extension_numbers_response 5 |ExtensionNumberResponse,
  list_services_response 6 |ListServiceResponse, error_response 7 |ErrorResponse
FileDescriptorResponse: file_descriptor_proto 1 *bytes
ExtensionNumberResponse: base_type_name 1 string, extension_number 2 *int32
ListServiceResponse: service 1 *ServiceResponse
ServiceResponse: name 1 string
ErrorResponse: error_code 1 int32, error_message 2 string
"""


class Reflection:
    """One version of the service."""

    def __init__(self, version: str) -> None:
        self._table = Table(
            f"grpc/reflection/{version}/reflection.proto",
            _PACKAGES[version],
            _MESSAGES,
            choices={"ServerReflectionRequest": "message_request", "ServerReflectionResponse": "message_response"},
            services={"ServerReflection": "ServerReflectionInfo *ServerReflectionRequest *ServerReflectionResponse"},
        )
        self._table.add()
        self._request, self._response = (self._table.message(f"ServerReflection{way}") for way in ("Request", "Response"))
        self.path = f"/{_PACKAGES[version]}.ServerReflection/ServerReflectionInfo"

    def answer(self, payload: Payload, _: Arrival, reply: Reply) -> Callable[[], None] | None:
        """Answer one message of the stream."""
        if len(payload) > _LIMIT_BYTES:
            reply(RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a message of reflection has at most {_LIMIT_BYTES} bytes"))
            return None
        try:
            request = self._request.FromString(bytes(payload))
        except DecodeError as error:
            reply(bad(f"the message is no ServerReflectionRequest: {error}"))
            return None
        response = self._response(valid_host=request.host, original_request=request)
        self._fill(request, response)
        reply(response.SerializeToString())
        return None

    def _fill(self, request: Any, response: Any) -> None:
        match request.WhichOneof("message_request"):
            case "list_services":
                for name in SERVICES:
                    response.list_services_response.service.add(name=name)
            case "file_by_filename":
                _add_file(response, lambda: POOL.FindFileByName(request.file_by_filename), request.file_by_filename)
            case "file_containing_symbol":
                _add_file(response, lambda: _file_of(request.file_containing_symbol), request.file_containing_symbol)
            case "file_containing_extension":
                _fail(response, _NOT_FOUND, "nothing here has extensions")
            case "all_extension_numbers_of_type":
                _no_extensions(response, request.all_extension_numbers_of_type)
            case _:
                _fail(response, _INVALID, "the request asks for nothing")


def _add_file(response: Any, find: Callable[[], Any], name: str) -> None:
    try:
        response.file_descriptor_response.file_descriptor_proto.append(find().serialized_pb)
    except KeyError:
        _fail(response, _NOT_FOUND, f"{name[:200]!r} is not known here")


def _file_of(symbol: str) -> Any:
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:
        # The pool finds a service, not its methods.
        service, _, method = symbol.rpartition(".")
        return POOL.FindServiceByName(service).methods_by_name[method].containing_service.file


def _no_extensions(response: Any, name: str) -> None:
    try:
        response.all_extension_numbers_response.base_type_name = POOL.FindMessageTypeByName(name).full_name
    except KeyError:
        _fail(response, _NOT_FOUND, f"{name[:200]!r} is not known here")


def _fail(response: Any, code: int, text: str) -> None:
    response.error_response.error_code, response.error_response.error_message = code, text


REFLECTIONS = tuple(Reflection(version) for version in _PACKAGES)
