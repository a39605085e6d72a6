"""Hosts that the URLs of a job may name: a list of exact names and `*.suffix`, kept by the operator and again by the worker.

An empty list allows every host. What no list can allow are the addresses that `uris.forbidden_address` names: the worker looks at
what a name resolves to, at each connection.
"""

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

# What a worker finds the administrator's proxy by, and the hosts, comma-separated, that it asks itself. No job sets INFERENCE_*.
PROXY_VARIABLE, NO_PROXY_VARIABLE = "INFERENCE_HTTPS_PROXY", "INFERENCE_NO_PROXY"

# Plain letters only: a resolver maps other ones to these, and obeys backslashes, so that a name could end otherwise than it reads.
_NAME = re.compile(r"[a-z0-9_]([-a-z0-9_.]*[a-z0-9_])?")
_ANY = "*."


def host_fault(host: str, allowed: Sequence[str]) -> str | None:
    """Why a URL may not name this host, with the list; None where it may."""
    if not allowed or any(_matches(_plain(host), _plain(entry)) for entry in allowed):
        return None
    return f"host {host} is not allowed; this cluster allows {', '.join(allowed)}"


def proxy_fault(url: str) -> str | None:
    """What is wrong with the URL of a proxy; None for one that can be used."""
    try:
        parts = urlsplit(url)
        good = parts.scheme == "http" and parts.hostname and parts.port and not (parts.username or parts.query or parts.fragment)
    except ValueError:
        good = False
    return None if good and parts.path in ("", "/") else f"{url!r} is no proxy; write http://HOST:PORT, without a password"


def entry_fault(entry: str) -> str | None:
    """What is wrong with an entry of the list; None for one that can be used."""
    name = _plain(entry).removeprefix(_ANY)
    if _address(name) is not None:
        return None if not entry.startswith(_ANY) else f"{entry!r}: an address has no names below it; list it as it is"
    if _NAME.fullmatch(name) is None or ".." in name or name.rpartition(".")[2].isdigit():
        return f"{entry!r} is neither a host's name, nor *.SUFFIX, nor an address; write no scheme, port or path"
    return None


def _matches(host: str, entry: str) -> bool:
    if not entry.startswith(_ANY):
        return host == entry
    return _NAME.fullmatch(host) is not None and _address(host) is None and host.endswith(entry.removeprefix("*"))


def _plain(host: str) -> str:
    """The host in the one spelling that is compared: lower case, without the root's dot, an address as short as it gets."""
    text = host.lower().removesuffix(".")
    address = _address(text)
    return text if address is None else str(address)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
