"""The filters by which Envoy knows who calls, holds each to its quota, and tells workers of it. Empty without tenants.

They are part of the listener, and follow from the settings alone: whatever workers do, no bucket is filled before its time.
"""

import math
from collections.abc import Iterable, Mapping

from inference_operator.gateway import messages, tenants_lua
from inference_operator.gateway.door import Door
from inference_operator.gateway.key_set import good_keys
from inference_operator.gateway.lua_values import places
from inference_operator.gateway.manifests import Manifest, any_of
from inference_operator.tenants import ANONYMOUS, Tenant, Tenants, Tokens

FILTER_TOLD = "told"
_BEARER = {"name": "authorization", "value_prefix": "Bearer "}
# What this filter answers with, and no other: the reply's text is found by it, and says 429.
OVER_QUOTA = 423
_ALWAYS: Manifest = {"default_value": {"numerator": 100}, "runtime_key": "unused"}


def before_the_route(door: Door) -> list[Manifest]:
    """Filters that come first, so that nothing is kept of a request that is refused."""
    tenants = door.tenants
    if not tenants.enabled:
        return []
    keys = good_keys(door.key_set)
    tokens = [{"name": "token", "typed_config": any_of(messages.TOKENS, _tokens(tenants.tokens, keys))}]
    limited = [tenant for tenant in tenants.all if tenant.requests_per_second is not None]
    quotas = [{"name": "quota", "typed_config": any_of(messages.QUOTAS, _quotas(limited, door.envoys))}]
    return [
        # Without keys no token is good; who is known otherwise gets in all the same.
        *(tokens if tenants.tokens.issuer and keys else ()),
        {"name": "who", "typed_config": _lua(tenants_lua.who(_known(tenants, door.envoys)))},
        *(quotas if limited else ()),
    ]


def behind_the_route(tenants: Tenants) -> list[Manifest]:
    """The filter that knows where a request goes."""
    if not tenants.enabled:
        return []
    source = tenants_lua.told({"TENANTS": {tenant.name: _told(tenant) for tenant in tenants.all}})
    return [{"name": FILTER_TOLD, "typed_config": _lua(source, routed=True)}]


def for_workers(tenants: Tenants) -> bool:
    """Whether workers keep a quota of which each has its part, so that their number counts."""
    quotas = ((t.rows_per_second, t.device_seconds_per_second, t.concurrent_requests) for t in tenants.all)
    return tenants.enabled and any(quota is not None for found in quotas for quota in found)


def _lua(source: str, *, routed: bool = False) -> Manifest:
    """A filter; one that is `routed` changes nothing of what the route is found by."""
    return any_of(messages.LUA, {"default_source_code": {"inline_string": source}, "clear_route_cache": not routed})


def _tokens(tokens: Tokens, key_set: str) -> Manifest:
    """Looks at tokens, and leaves to the next filter what follows. One in the query is none: queries are logged everywhere."""
    provider: Manifest = {
        "issuer": tokens.issuer,
        "audiences": list(tokens.audiences),
        "local_jwks": {"inline_string": key_set},
        "forward": tokens.forward,
        "from_headers": [_BEARER],
        "payload_in_metadata": tenants_lua.PAYLOAD,
        "failed_status_in_metadata": tenants_lua.FAILURE,
        "require_expiration": True,
    }
    every = {"match": {"prefix": "/"}, "requires": {"allow_missing_or_failed": {}}}
    return {"providers": [{"key": "issuer", "value": provider}], "rules": [every]}


def _known(tenants: Tenants, envoys: int) -> Mapping[str, object]:
    return {
        "KEY_FILE": tenants.key_file or None,
        "CLAIM": tenants.tokens.claim if tenants.tokens.issuer else None,
        "ANONYMOUS": ANONYMOUS,
        "WAYS": _ways(tenants),
        "CALLERS": {tenant.name: _quota_in_words(tenant, envoys) for tenant in tenants.all},
        "CLAIMS": {value: tenant.name for tenant in tenants.list for value in tenant.claims},
        "CERTIFICATES": {name: tenant.name for tenant in tenants.list for name in tenant.certificates},
    }


def _ways(tenants: Tenants) -> str:
    """What a caller is told to send."""
    ways = {
        "a client certificate": tenants.certificate_folder,
        "a token (authorization: Bearer TOKEN)": tenants.tokens.issuer,
        f"a key ({tenants_lua.KEY_HEADER}: KEY)": tenants.key_file,
    }
    return "send " + " or ".join(way for way, given in ways.items() if given) + " of a tenant of this gateway"


def _quota_in_words(tenant: Tenant, envoys: int) -> Mapping[str, str]:
    rate = tenant.requests_per_second
    if rate is None:
        return {"quota": "", "again": ""}
    return {"quota": f"{rate:g} requests a second", "again": str(math.ceil(envoys / rate))}


def _quotas(tenants: Iterable[Tenant], envoys: int) -> Manifest:
    """A bucket for each tenant, which all threads share."""
    path = [{"key": tenants_lua.CALLER}, {"key": "tenant"}]
    named = {"descriptor_key": "tenant", "metadata_key": {"key": tenants_lua.NOTES, "path": path}, "skip_if_absent": True}
    return {
        "stat_prefix": "quota",
        "status": {"code": OVER_QUOTA},
        "filter_enabled": _ALWAYS,
        "filter_enforced": _ALWAYS,
        "always_consume_default_token_bucket": False,
        "rate_limited_as_resource_exhausted": True,
        "rate_limits": [{"actions": [{"metadata": named}]}],
        "descriptors": [
            {"entries": [{"key": "tenant", "value": tenant.name}], "token_bucket": _bucket(rate, tenant.request_burst, envoys)}
            for tenant in tenants
            if (rate := tenant.requests_per_second) is not None
        ],
    }


def _bucket(rate: float, burst: int | None, envoys: int) -> Manifest:
    """One Envoy's part. A bucket fills all the time; the interval is at least a second, and Envoy allows a twentieth of that."""
    mine = rate / envoys
    tokens = math.ceil(mine)
    return {
        "max_tokens": math.ceil((burst or rate) / envoys),
        "tokens_per_fill": tokens,
        "fill_interval": f"{tokens / mine:.6f}s",
    }


def _told(tenant: Tenant) -> Mapping[str, object]:
    weight = f";weight={tenant.weight}" if tenant.weight != 1 else ""
    weight += f";priority={tenant.highest_priority}" if tenant.highest_priority != 100 else ""
    return {
        "told": tenant.name + weight,
        "namespaces": places(tenant.namespaces),
        "rows": tenant.rows_per_second,
        "device": tenant.device_seconds_per_second,
        "concurrent": tenant.concurrent_requests,
    }
