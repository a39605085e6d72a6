"""The messages of Envoy's external processing and of gRPC's health checks, by the names and numbers of their definitions."""

from inference_operator.gateway.tables import Table

_PACKAGE = "inference_operator.ext_proc"
_TABLE = Table(
    _PACKAGE,
    """
ProcessingRequest: request_headers 2 HttpHeaders, response_headers 3 HttpHeaders, request_body 4 HttpBody, response_body 5 HttpBody,
    request_trailers 6 HttpTrailers, response_trailers 7 HttpTrailers, metadata_context 8 Metadata, observability_mode 10 bool,
    protocol_config 11 ProtocolConfiguration
ProtocolConfiguration: request_body_mode 1 int32, response_body_mode 2 int32
Metadata: filter_metadata 1 *MetadataEntry
MetadataEntry: key 1 string, value 2 Struct
HttpHeaders: headers 1 HeaderMap, end_of_stream 3 bool
HeaderMap: headers 1 *HeaderValue
HeaderValue: key 1 string, value 2 string, raw_value 3 bytes
HttpBody: body 1 bytes, end_of_stream 2 bool, end_of_stream_without_message 3 bool, grpc_message_compressed 4 bool
HttpTrailers:
ProcessingResponse: request_headers 1 HeadersResponse, response_headers 2 HeadersResponse, request_body 3 BodyResponse,
    response_body 4 BodyResponse, request_trailers 5 TrailersResponse, response_trailers 6 TrailersResponse,
    immediate_response 7 ImmediateResponse, dynamic_metadata 8 Struct
HeadersResponse: response 1 CommonResponse
BodyResponse: response 1 CommonResponse
TrailersResponse:
CommonResponse: header_mutation 2 HeaderMutation, body_mutation 3 BodyMutation
HeaderMutation: set_headers 1 *HeaderOption
HeaderOption: header 1 HeaderValue, append_action 3 int32
BodyMutation: streamed_response 3 StreamedBody
StreamedBody: body 1 bytes, end_of_stream 2 bool, end_of_stream_without_message 3 bool, grpc_message_compressed 4 bool
ImmediateResponse: status 1 HttpStatus, headers 2 HeaderMutation, body 3 bytes, grpc_status 4 GrpcStatus, details 5 string
HttpStatus: code 1 int32
GrpcStatus: status 1 uint32
HealthCheckRequest: service 1 string
HealthCheckResponse: status 1 int32
""",
)

# The numbers of the modes in which Envoy sends bodies.
BUFFERED, FULL_DUPLEX = 2, 4
# The number of gRPC's health checks.
SERVING = 1
EXTERNAL_PROCESSOR = "envoy.service.ext_proc.v3.ExternalProcessor"
HEALTH = "grpc.health.v1.Health"

ProcessingRequest = _TABLE.message(f"{_PACKAGE}.ProcessingRequest")
ProcessingResponse = _TABLE.message(f"{_PACKAGE}.ProcessingResponse")
HealthCheckRequest = _TABLE.message(f"{_PACKAGE}.HealthCheckRequest")
HealthCheckResponse = _TABLE.message(f"{_PACKAGE}.HealthCheckResponse")
