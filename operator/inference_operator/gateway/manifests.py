"""Manifests as Envoy's documentation writes them, and what all of them are made with."""

from collections.abc import Mapping

from inference_operator.gateway import messages

Manifest = Mapping[str, object]

# The numbers of Envoy's enums.
_V3 = 2
ADS: Manifest = {"ads": {}, "resource_api_version": _V3}


def address(host: str, port: int) -> Manifest:
    """An IP address and port."""
    return {"socket_address": {"address": host, "port_value": port}}


def any_of(kind: str, manifest: Manifest) -> Manifest:
    """A message by its name, where Envoy takes any."""
    return {"@type": messages.type_url(kind), **manifest}


def metadata(**found: Manifest) -> Manifest:
    """The field of a route or a worker with what filters and logs find there, by their names; no field without any."""
    entries = [{"key": name, "value": what} for name, what in sorted(found.items())]
    return {"metadata": {"filter_metadata": entries}} if entries else {}


NOBODY: Manifest = {"match": {"prefix": "/"}, "direct_response": {"status": 404}}


def matched(header: str, exact: Mapping[str, Manifest], prefixes: Mapping[str, Manifest], otherwise: Manifest) -> Manifest:
    """A matcher of routes by a header, which is looked up: cost does not grow with their number."""
    key = {"name": "route", "typed_config": any_of(messages.HEADER_INPUT, {"header_name": header})}
    by_prefix = {
        "matcher_tree": {"input": key, "prefix_match_map": {"map": _entries(prefixes)}},
        "on_no_match": {"action": _action(otherwise)},
    }
    if not exact:
        # Envoy takes no empty map.
        return by_prefix
    return {"matcher_tree": {"input": key, "exact_match_map": {"map": _entries(exact)}}, "on_no_match": {"matcher": by_prefix}}


def _entries(routes: Mapping[str, Manifest]) -> list[Manifest]:
    return [{"key": key, "value": {"action": _action(route)}} for key, route in sorted(routes.items())]


def _action(route: Manifest) -> Manifest:
    return {"name": "route", "typed_config": any_of(messages.ROUTE, route)}
