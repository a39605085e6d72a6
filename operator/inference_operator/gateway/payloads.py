"""Copies of some requests and their answers, as CloudEvents over HTTP in binary mode. Nobody waits for them.

Payloads pass while they are copied, piece by piece: a stream stays one. Who is slow to take copies loses some: Envoy keeps few.
"""

from inference_operator.gateway import messages
from inference_operator.gateway.lua import ROUTE_HEADER
from inference_operator.gateway.lua_values import PLACES, constants, places
from inference_operator.gateway.manifests import Manifest, address, any_of
from inference_operator.gateway.tenants_lua import CALLER, NOTES
from inference_operator.payloads import Payloads, Sink, sink_of

CLUSTER_NAME = "payloads"
# The number of Envoy's enum.
_STRICT_DNS = 1
# Copies that wait in an Envoy, and such that are on their way. Each has at most as many bytes as the settings say.
_MOST_WAIT, _MOST_SENT = 64, 16

# An id is the gateway's own for callers from outside, and else the caller's: a header takes no line of its own.
_SOURCE = """
local COPY = "copy"
math.randomseed(os.time())

local function copied(handle)
  local parts, size, whole = {}, 0, true
  for chunk in handle:bodyChunks() do
    local length = chunk:length()
    local wanted = math.min(length, MOST_BYTES - size)
    if wanted > 0 then parts[#parts + 1] = chunk:getBytes(0, wanted) end
    size, whole = size + wanted, whole and wanted == length
  end
  return table.concat(parts), whole
end

local function send(handle, kind, about, content_type, data, whole)
  handle:httpCall(CLUSTER, {
    [":method"] = "POST", [":path"] = PATH, [":authority"] = AUTHORITY,
    ["content-type"] = content_type or "application/octet-stream",
    ["ce-specversion"] = "1.0", ["ce-type"] = "myorg.inference." .. kind, ["ce-source"] = about.source,
    ["ce-id"] = about.id .. "-" .. kind, ["ce-time"] = os.date("!%Y-%m-%dT%H:%M:%SZ"),
    ["ce-requestid"] = about.id, ["ce-tenant"] = about.tenant, ["ce-truncated"] = tostring(not whole),
  }, data, 5000, true)
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local namespace, model = (headers:get(ROUTE_HEADER) or ""):match("^%a+:([^:/]+)/(.+)$")
  local path = headers:get(":path") or ""
  if not namespace or not (path:match("^[^?]*/infer/?$") or path:match("^[^?]*/infer/?%?") or path:match("Infer$")) then return end
  if not has(PLACES, namespace) or math.random() * 100 >= PERCENT then return end
  local notes = handle:streamInfo():dynamicMetadata():get(NOTES)
  local id = (headers:get("x-request-id") or ""):gsub("[^%w-]", ""):sub(1, 64)
  local tenant = notes and notes[CALLER] and notes[CALLER]["tenant"] or ""
  local about = {id = id, source = "/" .. namespace .. "/" .. model, tenant = tenant}
  handle:streamInfo():dynamicMetadata():set(NOTES, COPY, about)
  local content_type = headers:get("content-type")
  send(handle, "request", about, content_type, copied(handle))
end

function envoy_on_response(handle)
  local notes = handle:streamInfo():dynamicMetadata():get(NOTES)
  local about = notes and notes[COPY]
  if not about then return end
  local content_type = handle:headers():get("content-type")
  send(handle, "response", about, content_type, copied(handle))
end
"""


def copying(payloads: Payloads) -> list[Manifest]:
    """The filter that copies; none where nobody wants copies."""
    sink = sink_of(payloads)
    if sink is None:
        return []
    values = {
        "CLUSTER": CLUSTER_NAME,
        "AUTHORITY": f"{sink.host}:{sink.port}",
        "PATH": sink.path,
        "PERCENT": payloads.percent,
        "MOST_BYTES": payloads.max_bytes,
        "PLACES": places(payloads.namespaces),
        "ROUTE_HEADER": ROUTE_HEADER,
        "NOTES": NOTES,
        "CALLER": CALLER,
    }
    source = constants(values) + PLACES + _SOURCE
    return [{"name": "copy", "typed_config": any_of(messages.LUA, {"default_source_code": {"inline_string": source}})}]


def sink_cluster(payloads: Payloads) -> dict[str, Manifest]:
    """Who gets copies, by the name of the cluster."""
    sink = sink_of(payloads)
    return {CLUSTER_NAME: _cluster(sink)} if sink is not None else {}


def _cluster(sink: Sink) -> Manifest:
    endpoint = {"lb_endpoints": [{"endpoint": {"address": address(sink.host, sink.port)}}]}
    return {
        "name": CLUSTER_NAME,
        "type": _STRICT_DNS,
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": CLUSTER_NAME, "endpoints": [endpoint]},
        "circuit_breakers": {
            "thresholds": [
                {"max_connections": _MOST_SENT, "max_pending_requests": _MOST_WAIT, "max_requests": _MOST_SENT + _MOST_WAIT}
            ]
        },
    }
