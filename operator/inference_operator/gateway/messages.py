"""Envoy's messages that the door needs, by the names and numbers of Envoy's API, version 3.

On the wire an embedded message has no name, so only those that travel in an Any are called as Envoy calls them. An enum is written
as its number, and a map as the list of its entries: both are the same bytes. The module is longer than others: it is one table.
"""

from collections.abc import Mapping

from inference_operator.gateway.tables import Table

_PACKAGE = "inference_operator.xds"
CLUSTER = "envoy.config.cluster.v3.Cluster"
ENDPOINTS = "envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = "envoy.config.listener.v3.Listener"
ROUTES = "envoy.config.route.v3.RouteConfiguration"
ROUTE = "envoy.config.route.v3.Route"
CONNECTION_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
LUA = "envoy.extensions.filters.http.lua.v3.Lua"
LUA_OF_ROUTE = "envoy.extensions.filters.http.lua.v3.LuaPerRoute"
AUTHORIZATION = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
AUTHORIZATION_OF_ROUTE = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute"
BRIDGE = "envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfig"
BRIDGE_OF_ROUTE = "envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfigPerRoute"
TOKENS = "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication"
QUOTAS = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
STDOUT = "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"
ROUTER = "envoy.extensions.filters.http.router.v3.Router"
OPENTELEMETRY = "envoy.config.trace.v3.OpenTelemetryConfig"
SAMPLER_BY_PARENT = "envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig"
SAMPLER_BY_RATIO = "envoy.extensions.tracers.opentelemetry.samplers.v3.TraceIdRatioBasedSamplerConfig"
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
SECRET = "envoy.extensions.transport_sockets.tls.v3.Secret"  # noqa: S105 -- a name
DOWNSTREAM_TLS = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
UPSTREAM_TLS = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
PLAIN = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
HEADER_INPUT = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
PREVIOUS_HOSTS = "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"

# Those after a blank line travel in an Any.
_TABLE = Table(
    _PACKAGE,
    """
DiscoveryRequest: version_info 1 string, node 2 Node, resource_names 3 *string, type_url 4 string, response_nonce 5 string,
    error_detail 6 Status
DiscoveryResponse: version_info 1 string, resources 2 *Any, type_url 4 string, nonce 5 string
Node: id 1 string, locality 4 Locality
Locality: zone 2 string
Status: code 1 int32, message 2 string
Address: socket_address 1 SocketAddress, pipe 2 Pipe
Pipe: path 1 string
Assignment: cluster_name 1 string, endpoints 2 *LocalityLbEndpoints
SocketAddress: address 2 string, port_value 3 uint32
ConfigSource: ads 3 Empty, resource_api_version 6 int32
Empty:
TransportSocket: name 1 string, typed_config 3 Any
SocketMatch: name 1 string, match 2 Struct, transport_socket 3 TransportSocket
TlsContext: tls_params 1 TlsParameters, alpn_protocols 4 *string, tls_certificate_sds_secret_configs 6 *SdsConfig,
    validation_context_sds_secret_config 7 SdsConfig, combined_validation_context 8 CombinedValidation
TlsParameters: tls_minimum_protocol_version 1 int32, tls_maximum_protocol_version 2 int32
SdsConfig: name 1 string, sds_config 2 ConfigSource
CombinedValidation: default_validation_context 1 Validation, validation_context_sds_secret_config 2 SdsConfig
Validation: trusted_ca 1 DataSource, watched_directory 11 WatchedDirectory, match_typed_subject_alt_names 15 *NameMatcher
NameMatcher: san_type 1 int32, matcher 2 StringMatcher
TlsCertificate: certificate_chain 1 DataSource, private_key 2 DataSource, watched_directory 7 WatchedDirectory
WatchedDirectory: path 1 string
DataSource: filename 1 string, inline_bytes 2 bytes, inline_string 3 string
TypedConfig: name 1 string, typed_config 2 Any
NamedConfig: name 1 string, typed_config 4 Any
RetryPredicate: name 1 string, typed_config 3 Any
OptionsEntry: key 1 string, value 2 Any
Percent: value 1 double
HttpHealthCheck: path 2 string
HealthCheck: timeout 1 Duration, interval 2 Duration, unhealthy_threshold 4 UInt32Value, healthy_threshold 5 UInt32Value,
    http_health_check 8 HttpHealthCheck, no_traffic_interval 12 Duration, transport_socket_match_criteria 23 Struct
EdsConfig: eds_config 1 ConfigSource
LbConfig: healthy_panic_threshold 1 Percent, update_merge_window 4 Duration, consistent_hashing_lb_config 7 ConsistentHashing
ConsistentHashing: hash_balance_factor 2 UInt32Value
RetryBudget: budget_percent 1 Percent, min_retry_concurrency 2 UInt32Value
Thresholds: max_connections 2 UInt32Value, max_pending_requests 3 UInt32Value, max_requests 4 UInt32Value,
    retry_budget 8 RetryBudget
CircuitBreakers: thresholds 1 *Thresholds
OutlierDetection: consecutive_5xx 1 UInt32Value, interval 2 Duration, base_ejection_time 3 Duration,
    max_ejection_percent 4 UInt32Value, enforcing_consecutive_5xx 5 UInt32Value, enforcing_success_rate 6 UInt32Value,
    enforcing_consecutive_gateway_failure 11 UInt32Value, split_external_local_origin_errors 12 bool,
    consecutive_local_origin_failure 13 UInt32Value, enforcing_local_origin_success_rate 15 UInt32Value
LocalityLbEndpoints: lb_endpoints 2 *LbEndpoint, priority 5 uint32
LbEndpoint: endpoint 1 Endpoint, health_status 2 int32, metadata 3 Metadata, load_balancing_weight 4 UInt32Value
Endpoint: address 1 Address, health_check_config 2 HealthCheckPort
Metadata: filter_metadata 1 *MetadataEntry
MetadataEntry: key 1 string, value 2 Struct
HealthCheckPort: port_value 1 uint32, disable_active_health_check 4 bool
FilterChain: filters 3 *NamedConfig, transport_socket 6 TransportSocket
Rds: config_source 1 ConfigSource, route_config_name 2 string
BodyFormat: json_format 2 Struct, text_format_source 5 DataSource
LocalReplies: mappers 1 *ReplyMapper
ReplyMapper: filter 1 ReplyFilter, status_code 2 UInt32Value, body_format_override 4 BodyFormat, headers_to_add 5 *HeaderOption
ReplyFilter: status_code_filter 1 StatusFilter, and_filter 6 AndFilter, header_filter 8 HeaderFilter,
    response_flag_filter 9 FlagFilter
FlagFilter: flags 1 *string
StatusFilter: comparison 1 Comparison
Comparison: op 1 int32, value 2 RuntimeNumber
RuntimeNumber: default_value 2 uint32, runtime_key 3 string
AndFilter: filters 1 *ReplyFilter
HeaderFilter: header 1 HeaderMatcher
HeaderMatcher: name 1 string, string_match 13 StringMatcher
StringMatcher: exact 1 string, prefix 2 string
HeaderOption: header 1 HeaderValue, append_action 3 int32
HeaderValue: key 1 string, value 2 string
ConnectionOptions: idle_timeout 1 Duration
Tracing: provider 9 TraceProvider, spawn_upstream_span 10 BoolValue
TraceProvider: name 1 string, typed_config 3 Any
HttpService: http_uri 1 HttpUri
HttpUri: uri 1 string, cluster 2 string, timeout 3 Duration
ExplicitConfig: http_protocol_options 1 Empty, http2_protocol_options 2 Empty
VirtualHost: name 1 string, domains 2 *string, typed_per_filter_config 15 *OptionsEntry, matcher 21 Matcher,
    request_body_buffer_limit 25 UInt64Value
Matcher: matcher_tree 2 MatcherTree, on_no_match 3 OnMatch
MatcherTree: input 1 TypedConfig, exact_match_map 2 MatchMap, prefix_match_map 3 MatchMap
MatchMap: map 1 *MatchEntry
MatchEntry: key 1 string, value 2 OnMatch
OnMatch: matcher 1 Matcher, action 2 TypedConfig
RouteMatch: prefix 1 string
DirectResponse: status 1 uint32, body 2 DataSource
RouteAction: cluster 1 string, weighted_clusters 3 WeightedClusters, timeout 8 Duration, retry_policy 9 RetryPolicy,
    hash_policy 15 *HashPolicy, request_mirror_policies 30 *MirrorPolicy, max_stream_duration 36 MaxStreamDuration
HashPolicy: header 1 HashHeader
HashHeader: header_name 1 string
WeightedClusters: clusters 1 *ClusterWeight, header_name 4 string
ClusterWeight: name 1 string, weight 2 UInt32Value
MirrorPolicy: cluster 1 string, runtime_fraction 3 RuntimeFraction, disable_shadow_host_suffix_append 6 bool
RuntimeFraction: default_value 1 FractionalPercent, runtime_key 2 string
FractionalPercent: numerator 1 uint32, denominator 2 int32
MaxStreamDuration: grpc_timeout_header_max 2 Duration
RetryPolicy: retry_on 1 string, num_retries 2 UInt32Value, retry_host_predicate 5 *RetryPredicate,
    host_selection_retry_max_attempts 6 int64, retry_back_off 8 BackOff
BackOff: base_interval 1 Duration, max_interval 2 Duration
GrpcService: envoy_grpc 1 EnvoyGrpc, timeout 3 Duration
EnvoyGrpc: cluster_name 1 string
HttpStatus: code 1 int32
CheckSettings: disable_request_body_buffering 2 bool
CheckRequest: attributes 1 Attributes
Attributes: request 4 AttributesRequest
AttributesRequest: http 2 HttpRequest
HttpRequest: headers 3 *HeaderEntry
HeaderEntry: key 1 string, value 2 string
CheckResponse: status 1 Status, denied_response 2 Denied, ok_response 3 Allowed
Denied: status 1 HttpStatus, headers 2 *HeaderOption, body 3 string
Allowed: headers 2 *HeaderOption
JwtProviderEntry: key 1 string, value 2 JwtProvider
JwtProvider: issuer 1 string, audiences 2 *string, local_jwks 4 DataSource, forward 5 bool, from_headers 6 *JwtHeader,
    payload_in_metadata 9 string, failed_status_in_metadata 16 string, require_expiration 20 bool
JwtHeader: name 1 string, value_prefix 2 string
JwtRule: match 1 RouteMatch, requires 2 JwtRequirement
JwtRequirement: allow_missing_or_failed 5 Empty
QuotaDescriptor: entries 1 *QuotaEntry, token_bucket 2 TokenBucket
QuotaEntry: key 1 string, value 2 string
TokenBucket: max_tokens 1 uint32, tokens_per_fill 2 UInt32Value, fill_interval 3 Duration
RateLimit: actions 3 *RateLimitAction
RateLimitAction: metadata 8 RateLimitMetadata
RateLimitMetadata: descriptor_key 1 string, metadata_key 2 MetadataKey, skip_if_absent 5 bool
MetadataKey: key 1 string, path 2 *PathSegment
PathSegment: key 1 string
ServerLiveResponse: live 1 bool
ServerReadyResponse: ready 1 bool
ServerMetadataResponse: name 1 string, version 2 string, extensions 3 *string
RepositoryIndexResponse: models 1 *ModelIndex
ModelIndex: name 1 string, version 2 string, state 3 string, reason 4 string

envoy.config.cluster.v3.Cluster: name 1 string, type 2 int32, eds_cluster_config 3 EdsConfig, connect_timeout 4 Duration,
    lb_policy 6 int32, health_checks 8 *HealthCheck, circuit_breakers 10 CircuitBreakers, outlier_detection 19 OutlierDetection,
    common_lb_config 27 LbConfig, ignore_health_on_host_removal 32 bool, load_assignment 33 Assignment,
    transport_socket 24 TransportSocket, typed_extension_protocol_options 36 *OptionsEntry, transport_socket_matches 43 *SocketMatch
envoy.config.endpoint.v3.ClusterLoadAssignment: cluster_name 1 string, endpoints 2 *LocalityLbEndpoints
envoy.config.listener.v3.Listener: name 1 string, address 2 Address, filter_chains 3 *FilterChain
envoy.config.trace.v3.OpenTelemetryConfig: service_name 2 string, http_service 3 HttpService, sampler 5 TypedConfig,
    max_cache_size 6 UInt32Value
envoy.config.route.v3.RouteConfiguration: name 1 string, virtual_hosts 2 *VirtualHost,
    max_direct_response_body_size_bytes 11 UInt32Value
envoy.config.route.v3.Route: match 1 RouteMatch, route 2 RouteAction, metadata 4 Metadata, direct_response 7 DirectResponse,
    response_headers_to_add 10 *HeaderOption, typed_per_filter_config 13 *OptionsEntry, request_body_buffer_limit 20 UInt64Value
envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager: stat_prefix 2 string, rds 3 Rds,
    http_filters 5 *NamedConfig, tracing 7 Tracing, access_log 13 *NamedConfig, use_remote_address 14 BoolValue,
    stream_idle_timeout 24 Duration, normalize_path 30 BoolValue, common_http_protocol_options 35 ConnectionOptions,
    local_reply_config 38 LocalReplies, request_headers_timeout 41 Duration, path_with_escaped_slashes_action 45 int32
envoy.extensions.filters.http.ext_authz.v3.ExtAuthz: grpc_service 1 GrpcService, status_on_error 7 HttpStatus,
    transport_api_version 12 int32
envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute: disabled 1 bool, check_settings 2 CheckSettings
envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfig: content_type 1 string, withhold_grpc_frames 2 bool
envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfigPerRoute: disabled 1 bool
envoy.extensions.filters.http.lua.v3.Lua: default_source_code 3 DataSource, clear_route_cache 5 BoolValue
envoy.extensions.filters.http.lua.v3.LuaPerRoute: source_code 3 DataSource
envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication: providers 1 *JwtProviderEntry, rules 2 *JwtRule
envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit: stat_prefix 1 string, status 2 HttpStatus,
    filter_enabled 4 RuntimeFraction, filter_enforced 5 RuntimeFraction, descriptors 8 *QuotaDescriptor,
    always_consume_default_token_bucket 14 BoolValue, rate_limited_as_resource_exhausted 15 bool, rate_limits 17 *RateLimit
envoy.extensions.access_loggers.stream.v3.StdoutAccessLog: log_format 1 BodyFormat
envoy.extensions.filters.http.router.v3.Router: suppress_envoy_headers 4 bool
envoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfig: wrapped_sampler 1 TypedConfig
envoy.extensions.tracers.opentelemetry.samplers.v3.TraceIdRatioBasedSamplerConfig: sampling_percentage 1 FractionalPercent
envoy.extensions.upstreams.http.v3.HttpProtocolOptions: explicit_http_config 3 ExplicitConfig
envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer:
envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext: common_tls_context 1 TlsContext,
    disable_stateless_session_resumption 7 bool, disable_stateful_session_resumption 10 bool
envoy.extensions.transport_sockets.tls.v3.Secret: name 1 string, tls_certificate 2 TlsCertificate, validation_context 4 Validation
envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext: common_tls_context 1 TlsContext, sni 2 string
envoy.type.matcher.v3.HttpRequestHeaderMatchInput: header_name 1 string
envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate:
""",
)

DiscoveryRequest = _TABLE.message(f"{_PACKAGE}.DiscoveryRequest")
DiscoveryResponse = _TABLE.message(f"{_PACKAGE}.DiscoveryResponse")
CheckRequest = _TABLE.message(f"{_PACKAGE}.CheckRequest")
CheckResponse = _TABLE.message(f"{_PACKAGE}.CheckResponse")


def type_url(name: str) -> str:
    """How an Any names a message."""
    return f"type.googleapis.com/{name}"


packed = _TABLE.packed
unpacked = _TABLE.unpacked


def embedded(name: str, manifest: Mapping[str, object]) -> bytes:
    """The bytes of a message without a package, as callers of the Open Inference Protocol get it."""
    return packed(f"{_PACKAGE}.{name}", manifest)
