"""The filter that says whom a request is for. It writes one header, by which the route is looked up."""

# Read by the route table, and taken from callers who send it. PROTOCOL:NAMESPACE/MODEL or PROTOCOL:NAMESPACE/MODEL@VERSION.
ROUTE_HEADER = "inference-route"
# What callers may say in place of a path or a host (HTTP), or of a request that is read for it (gRPC).
NAMESPACE_HEADER = "inference-namespace"
MODEL_HEADER = "inference-model"
VERSION_HEADER = "inference-model-version"
# Which of a hundred a request is, where a route splits its requests between versions.
DRAW_HEADER = "inference-draw"

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

local function choose(headers, protocol, namespace, model, version)
  if not (namespace and model and namespace:match(NAME) and model:match(NAME)) then return end
  local route = protocol .. ":" .. namespace .. "/" .. model
  if version and version:match(NAME) then route = route .. "@" .. version end
  headers:replace("inference-route", route)
end

local function ask(headers, what, namespace)
  if namespace and namespace:match(NAME) then headers:replace("inference-route", "self:" .. what .. namespace) end
end

function envoy_on_request(handle)
  local headers = handle:headers()
  headers:remove("inference-route")
  local allowed = headers:get("inference-timeout-ms")
  if allowed and tonumber(allowed) then
    headers:replace("x-envoy-upstream-rq-timeout-ms", string.format("%d", math.min(tonumber(allowed), 86400000) + GRACE))
  end
  local path = headers:get(":path") or ""
  local host = (headers:get(":authority") or ""):match("^([^.:]+)%.[^:]*%a")
  local namespace = headers:get("inference-namespace") or host
  if (headers:get("content-type") or ""):sub(1, 16) ~= "application/grpc" then
    local base, rest = path:match("^/([^/?]+)(/v2[/?].*)$")
    if not base then base, rest = path:match("^/([^/?]+)(/v2)$") end
    if base then
      namespace = base
      path = rest
      headers:replace(":path", rest)
    end
    if path:match("^/v2/health/%a+$") or path == "/v2" then
      headers:replace("inference-route", "self:http:" .. path)
      return
    end
    if path == "/v2/repository/index" then
      ask(headers, "http:index:", namespace)
      return
    end
    local model, after = path:match("^/v2/models/([^/?]+)(.*)$")
    choose(headers, "http", namespace, model, after and after:match("^/versions/([^/?]+)"))
    return
  end
  local model = headers:get("inference-model")
  if model then
    choose(headers, "grpc", namespace, model, headers:get("inference-model-version"))
    return
  end
  local call = path:match("^/inference%.GRPCInferenceService/(%a+)$")
  if call == "ServerLive" or call == "ServerReady" or call == "ServerMetadata" then
    headers:replace("inference-route", "self:grpc:" .. call)
    return
  end
  if call == "RepositoryIndex" then
    ask(headers, "grpc:RepositoryIndex:", namespace)
    return
  end
  if path:match("Stream") then
    refuse(handle, "3", "name the model in the metadata inference-model: a stream can't be read ahead")
    return
  end
  if not (call and call:match("^Model")) then
    refuse(handle, "12", "the gateway has no such call")
    return
  end
  local body = handle:body()
  if body == nil or body:length() < 7 then
    refuse(handle, "3", "the request names no model")
    return
  end
  local bytes = body:getBytes(0, math.min(body:length(), 1024))
  if bytes:byte(1) ~= 0 then
    refuse(handle, "3", "name the model in the metadata inference-model: a compressed request can't be read")
    return
  end
  local name, at = field(bytes, 6, 10)
  if not name then
    refuse(handle, "3", "name the model in the metadata inference-model: the request does not begin with its name")
    return
  end
  choose(handle:headers(), "grpc", namespace, name, (field(bytes, at, 18)))
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
