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
