"""The filters that say who calls, and what workers are told of it. Both are made with the tenants' table in them."""

from collections.abc import Mapping

from inference_operator.gateway.lua import ROUTE_HEADER, TENANT_HEADER
from inference_operator.gateway.lua_values import PLACES, constants

# Where a key is. It is taken off every request.
KEY_HEADER = "x-api-key"
# Where filters keep what they know of a request, for others and for the log.
NOTES = "inference"
CALLER = "caller"
# What the filter for tokens writes: a namespace of its own, and what is in it.
TOKEN_NOTES, PAYLOAD, FAILURE = "envoy.filters.http.jwt_authn", "payload", "failure"
# A shorter one could be guessed.
SHORTEST_KEY = 16

# Envoy lets a request pass whose filter has failed. So what may fail is called by name, and a request that it fails for is refused.
_REFUSE = """
local function refuse(handle, status, code, message)
  local headers = handle:headers()
  if (headers:get("content-type") or ""):sub(1, 16) == "application/grpc" then
    local answer = {[":status"] = "200", ["content-type"] = "application/grpc", ["grpc-status"] = code, ["grpc-message"] = message}
    handle:respond(answer, "")
    return
  end
  local answer = {[":status"] = status, ["content-type"] = "application/json"}
  if status == "401" then answer["www-authenticate"] = "Bearer" end
  handle:respond(answer, '{"error":"' .. message .. '"}')
end

local judge

function envoy_on_request(handle)
  local known, status, code, message = pcall(judge, handle)
  if not known then
    handle:logErr("a request can't be judged: " .. tostring(status))
    status, code, message = "500", "13", "the gateway can't say whether you may do this"
  end
  if status then refuse(handle, status, code, message) end
end
"""

# Keys are looked at again as a mounted Secret changes, at most once in so many seconds and thread: the file is in memory.
_WHO = """
local EVERY_SECONDS = 5
local keys, text, looked = {}, "", 0

local function taken(line)
  local name, key = line:match("^%s*(%S+)%s+(%S+)%s*$")
  if not name then return nil, "is not TENANT KEY" end
  if not CALLERS[name] then return nil, "names no tenant of gateway.tenants.list" end
  if #key < SHORTEST then return nil, "has a key of less than " .. SHORTEST .. " characters" end
  -- A key that several tenants have is nobody's.
  local before = keys[key]
  if before ~= nil and before ~= name then return key, "has a key that several tenants have", false end
  return key, nil, name
end

local function known_keys(handle)
  local now = os.time()
  if now - looked < EVERY_SECONDS then return keys end
  looked = now
  local file = io.open(KEY_FILE, "r")
  local found = file and file:read("*a") or ""
  if file then file:close() end
  if found ~= text then
    text, keys = found, {}
    local number = 0
    for line in (found .. "\\n"):gmatch("([^\\n]*)\\n") do
      number = number + 1
      if line:find("%S") then
        local key, why, name = taken(line)
        if key then keys[key] = name end
        if why then handle:logWarn("line " .. number .. " of the tenants' keys is passed over: it " .. why) end
      end
    end
  end
  return keys
end

local function by_key(handle)
  local headers = handle:headers()
  local key = headers:get(KEY_HEADER)
  if not key then return nil end
  headers:remove(KEY_HEADER)
  return KEY_FILE and known_keys(handle)[key] or nil
end

local function by_token(handle)
  local notes = handle:streamInfo():dynamicMetadata():get(TOKEN_NOTES)
  if not notes then return nil end
  if not notes[PAYLOAD] then return nil, nil, notes[FAILURE] and notes[FAILURE]["message"] end
  local value = notes[PAYLOAD][CLAIM]
  for _, one in ipairs(type(value) == "table" and value or {value}) do
    if CLAIMS[one] then return CLAIMS[one], one end
  end
end

local function named(kind, names)
  for _, name in ipairs(names) do
    if CERTIFICATES[kind .. name] then return CERTIFICATES[kind .. name], kind .. name end
  end
end

local function by_certificate(handle)
  local ssl = handle:streamInfo():downstreamSslConnection()
  if ssl == nil or not ssl:peerCertificateValidated() then return nil end
  local subject = ssl:parsedSubjectPeerCertificate()
  local common = {subject and subject:commonName()}
  local found = {{"URI:", ssl:uriSanPeerCertificate()}, {"DNS:", ssl:dnsSansPeerCertificate()}, {"CN:", common}}
  for _, one in ipairs(found) do
    local name, identity = named(one[1], one[2])
    if name then return name, identity end
  end
end

local function who(handle)
  local name = by_key(handle)
  if name then return name, "key" end
  local identity, why
  if CLAIM then
    name, identity, why = by_token(handle)
    if name then return name, "token", identity end
  end
  if next(CERTIFICATES) then
    name, identity = by_certificate(handle)
    if name then return name, "certificate", identity end
  end
  return CALLERS[ANONYMOUS] and ANONYMOUS, "anonymous", nil, why
end

function judge(handle)
  -- It is named anew behind this filter; the log has what is refused here.
  if handle:headers():get(ROUTE_HEADER) then handle:headers():remove(ROUTE_HEADER) end
  local name, by, identity, why = who(handle)
  if not name then
    return "401", "16", "it is not known who calls: " .. WAYS .. (why and " (the token: " .. why .. ")" or "")
  end
  local quota = CALLERS[name]
  local note = {tenant = name, by = by, identity = identity, quota = quota.quota, again = quota.again}
  handle:streamInfo():dynamicMetadata():set(NOTES, CALLER, note)
end
"""

# `workers` of a route is there where a tenant has a quota that its workers keep. What one is told of comes to the whole again.
_TOLD = """
local function part(name, whole, workers)
  return whole and (";" .. name .. "=" .. (("%.6f"):format(math.max(whole / workers, 1e-6)):gsub("%.?0+$", ""))) or ""
end

function judge(handle)
  local headers = handle:headers()
  local notes = handle:streamInfo():dynamicMetadata():get(NOTES)
  local name = notes and notes[CALLER] and notes[CALLER]["tenant"]
  local tenant = name and TENANTS[name]
  if not tenant then return "401", "16", "it is not known who calls" end
  local route = headers:get(ROUTE_HEADER) or ""
  local namespace = route:match("^%a+:([^:/]+)/") or route:match("^self:%a+:%a+:(.+)$")
  if namespace and not has(tenant.namespaces, namespace) then
    return "403", "7", "the tenant " .. name .. " has no access to the namespace " .. namespace
  end
  local workers = handle:metadata():get("workers") or 1
  local told = tenant.told .. part("rows", tenant.rows, workers) .. part("device", tenant.device, workers)
  if tenant.concurrent then told = told .. ";concurrent=" .. math.ceil(tenant.concurrent / workers) end
  headers:replace(TENANT_HEADER, told)
end
"""


def who(values: Mapping[str, object]) -> str:
    """The first filter of all: finds the tenant, and refuses whoever is none."""
    fixed = {"SHORTEST": SHORTEST_KEY, "TOKEN_NOTES": TOKEN_NOTES, "PAYLOAD": PAYLOAD, "FAILURE": FAILURE}
    names = {"KEY_HEADER": KEY_HEADER, "ROUTE_HEADER": ROUTE_HEADER, "NOTES": NOTES, "CALLER": CALLER}
    return constants({**fixed, **names, **values}) + _REFUSE + _WHO


def told(values: Mapping[str, object]) -> str:
    """The filter behind the one that names the route: where the tenant may go, and what workers are told of it."""
    fixed = {"NOTES": NOTES, "CALLER": CALLER, "ROUTE_HEADER": ROUTE_HEADER, "TENANT_HEADER": TENANT_HEADER}
    return constants({**fixed, **values}) + PLACES + _REFUSE + _TOLD
