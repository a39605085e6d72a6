"""The filter that says whom a request is for. It writes one header, by which the route is looked up."""

# Read by the route table, and taken from callers who send it. PROTOCOL:NAMESPACE/MODEL or PROTOCOL:NAMESPACE/MODEL@VERSION.
ROUTE_HEADER = "inference-route"
# What callers may say in place of a path or a host (HTTP), or of a request that is read for it (gRPC).
NAMESPACE_HEADER = "inference-namespace"
MODEL_HEADER = "inference-model"
VERSION_HEADER = "inference-model-version"
# Which of a hundred a request is, where a route splits its requests between versions.
DRAW_HEADER = "inference-draw"
# What a worker is told of the caller's tenant. Only the gateway says it: what a caller says of it is removed.
TENANT_HEADER = "inference-tenant"

# A message of gRPC is a flag, four bytes of length, and fields. Requests begin with the model's name (1) and version (2).
# A worker itself says that a deadline has passed. Envoy says so only for one that is silent for so much longer: what it says counts
# against the worker, which may be left out for it.
SOURCE = """
local GRACE = 250
local NAME = "^[%w._-]+$"

local function field(bytes, at, tag)
  if bytes:byte(at) ~= tag then return nil, at end
  local length = bytes:byte(at + 1)
  if length == nil then return nil, at end
  local start = at + 2
  if length > 127 then
    length = length - 128 + 128 * (bytes:byte(at + 2) or 0)
    start = at + 3
  end
  return bytes:sub(start, start + length - 1), start + length
end

local function refuse(handle, code, message)
  local headers = {[":status"] = "200", ["content-type"] = "application/grpc", ["grpc-status"] = code, ["grpc-message"] = message}
  handle:respond(headers, "")
end

local function is_name(text)
  return text and text:match(NAME)
end

local function of_model(protocol, namespace, model, version)
  if not (is_name(namespace) and is_name(model)) then return nil end
  local route = protocol .. ":" .. namespace .. "/" .. model
  if version == nil or version == "" then return route end
  return is_name(version) and route .. "@" .. version or nil
end

local function namespace_of(headers)
  return headers:get("inference-namespace") or (headers:get(":authority") or ""):match("^([^.:]+)%.[^:]*%a")
end

local function of_http(headers, path)
  local base, rest = path:match("^/([^/?]+)(/v2[/?].*)$")
  if not base then base, rest = path:match("^/([^/?]+)(/v2)$") end
  if base then
    path = rest
    headers:replace(":path", rest)
  end
  local model, after = path:match("^/v2/models/([^/?]+)(.*)$")
  if model then return of_model("http", base or namespace_of(headers), model, after:match("^/versions/([^/?]+)")) end
  local plain = path:gsub("%?.*$", ""):gsub("/+$", "")
  if plain == "/v2" or plain:match("^/v2/health/%a+$") then return "self:http:" .. plain end
  if plain == "/v2/repository/index" then
    local namespace = base or namespace_of(headers)
    return is_name(namespace) and "self:http:index:" .. namespace
  end
end

local function of_message(handle, headers)
  local namespace = namespace_of(headers)
  local body = handle:body()
  if body == nil or body:length() < 7 then return nil, "3", "the request names no model" end
  local bytes = body:getBytes(0, math.min(body:length(), 1024))
  if bytes:byte(1) ~= 0 then
    return nil, "3", "name the model in the metadata inference-model: a compressed request can't be read"
  end
  local name, at = field(bytes, 6, 10)
  if not name then
    return nil, "3", "name the model in the metadata inference-model: the request does not begin with its name"
  end
  return of_model("grpc", namespace, name, (field(bytes, at, 18)))
end

local function is_of_model(path)
  return path:match("^/inference%.GRPCInferenceService/Model%a+$") or path:match("^/grpc%.health%.v1%.Health/%a+$")
    or path:match("^/grpc%.reflection%.v1%a*%.ServerReflection/%a+$")
end

local function of_grpc(handle, headers, path)
  local call = path:match("^/inference%.GRPCInferenceService/(%a+)$")
  if call == "ServerLive" or call == "ServerReady" or call == "ServerMetadata" then return "self:grpc:" .. call end
  if call == "RepositoryIndex" then
    local namespace = namespace_of(headers)
    return is_name(namespace) and "self:grpc:RepositoryIndex:" .. namespace
  end
  if not is_of_model(path) then return nil, "12", "the gateway has no such call" end
  local model = headers:get("inference-model")
  if model then return of_model("grpc", namespace_of(headers), model, headers:get("inference-model-version")) end
  if not call or call:match("Stream") then
    return nil, "3", "name the model in the metadata inference-model: this call can't be read ahead"
  end
  return of_message(handle, headers)
end

function envoy_on_request(handle)
  local headers = handle:headers()
  headers:remove("inference-tenant")
  local allowed = tonumber(headers:get("inference-timeout-ms") or "")
  if allowed then
    headers:replace("x-envoy-upstream-rq-timeout-ms", string.format("%d", math.min(allowed, 86400000) + GRACE))
  end
  local path, route, code, why = headers:get(":path") or "", nil, nil, nil
  if (headers:get("content-type") or ""):sub(1, 16) == "application/grpc" then
    route, code, why = of_grpc(handle, headers, path)
  else
    route = of_http(headers, path)
  end
  if code then
    refuse(handle, code, why)
  elseif route then
    handle:headers():replace("inference-route", route)
  else
    handle:headers():remove("inference-route")
  end
end
"""

# Runs on routes that split their requests, and on no other. A hundred requests in a row of a thread have every number once: a share
# is exact where chance is off by a tenth. The stride spreads the numbers, so a canary's requests don't come in a row.
DRAW = """
local drawn = 0

function envoy_on_request(handle)
  drawn = (drawn + 61) % 100
  handle:headers():replace("inference-draw", tostring(drawn))
end
"""
