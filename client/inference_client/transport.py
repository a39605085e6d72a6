"""The way to the API server, by kubeconfig as kubectl has it: contexts, client certificates, tokens, exec credentials, proxies.

Of this package, this module and `aio_transport.py` alone know the `kubernetes` package. `Transport` blocks.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import urllib3

from inference_client.calls import Call, Raw
from inference_client.errors import UnavailableError, refusal
from inference_client.kubeconfig import DEFAULT, Chosen, chosen, files_of, unconfigured, without_credentials

if TYPE_CHECKING:
    from kubernetes import client

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
# What a watch may hold in one event: an object has at most 1.5 MiB in etcd, and JSON is longer.
_LINE_LIMIT = 8 << 20


class Transport:
    """Carries calls out, one after the other."""

    def __init__(self, api: "client.ApiClient", namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    @classmethod
    def from_kubeconfig(cls, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """As kubectl: KUBECONFIG or ~/.kube/config, else the pod's own account. Raises ConfigurationError."""
        # It takes longer to import than all else, and neither a help text nor a shell that completes needs it.
        from kubernetes import client, config

        try:
            if inside(kubeconfig):
                settings = client.Configuration()
                config.load_incluster_config(settings)
                return cls(client.ApiClient(settings), own_namespace())
            given = chosen(kubeconfig, context)
            made = config.new_client_from_config(config_file=given.files, context=given.context)
        except (config.ConfigException, OSError) as error:
            raise unconfigured(files_of(kubeconfig), error) from error
        require_credentials(given, made)
        return cls(made, given.namespace)

    def close(self) -> None:
        """End the connections."""
        self.api.close()

    def send(self, call: Call) -> Raw:
        """The answer. Raises ClientError."""
        try:
            request = self.api.param_serialize(*prepared(call), auth_settings=["BearerToken"])
            response = self.api.call_api(*request, _request_timeout=(10.0, call.timeout_seconds))
            if not 200 <= response.status <= 299:
                raise refusal(response.status, response.read())
            if call.first_change:
                with response.response as stream:
                    return event(next(_lines(stream), b""))
            body = response.read()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise unreachable(self.api.configuration.host, error) from error
        return {"text": body.decode(errors="replace")} if call.text else document(body)

    def lines(self, call: Call) -> Iterator[bytes]:
        """The lines of an answer that goes on, for example of a log. Raises ClientError."""
        try:
            request = self.api.param_serialize(*prepared(call), auth_settings=["BearerToken"])
            response = self.api.call_api(*request, _request_timeout=(10.0, call.timeout_seconds))
            if not 200 <= response.status <= 299:
                raise refusal(response.status, response.read())
            with response.response as stream:
                yield from _lines(stream)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise unreachable(self.api.configuration.host, error) from error


def inside(kubeconfig: str | None) -> bool:
    """Whether only the account of this pod leads to a cluster."""
    if kubeconfig is not None or os.environ.get("KUBECONFIG") or Path(DEFAULT).expanduser().exists():
        return False
    return _SERVICE_ACCOUNT.exists()


def own_namespace() -> str:
    """The namespace of this pod."""
    return _SERVICE_ACCOUNT.read_text().strip()


def require_credentials(given: Chosen, made: Any) -> None:
    """Raise ConfigurationError where a program gave none: the package says so in a log, and goes on as nobody."""
    settings = made.configuration
    if given.program and not (settings.api_key or settings.cert_file):
        raise without_credentials(given)


def prepared(call: Call) -> tuple[str, str, None, list[tuple[str, str]], dict[str, str], Any]:
    """A call as both packages take it."""
    headers = {"Accept": "*/*" if call.text else "application/json"}
    if call.body is not None:
        headers["Content-Type"] = call.content_type
    return call.method, call.path, None, list(call.query), headers, call.body


def _lines(stream: Any) -> Iterator[bytes]:
    kept = b""
    for chunk in stream.stream(amt=None):
        kept += chunk
        *whole, kept = kept.split(b"\n")
        yield from whole
        if len(kept) > _LINE_LIMIT:
            raise UnavailableError(f"the API server sends a line of more than {_LINE_LIMIT} bytes")
    if kept:
        yield kept


def document(body: bytes) -> Raw:
    """An answer in JSON. Raises UnavailableError."""
    try:
        found: Raw = json.loads(body)
    except ValueError as error:
        raise UnavailableError(f"the API server's answer is no JSON: {body[:200]!r}") from error
    return found


def event(line: bytes) -> Raw:
    """A change of a watch; nothing for an empty line. Raises ClientError for an error in its place."""
    if not line.strip():
        return {}
    found = document(line)
    if found.get("type") == "ERROR":
        status = found.get("object", {})
        raise refusal(int(status.get("code", 500)), status)
    return found


def unreachable(host: str, error: Exception) -> UnavailableError:
    """The error for a connection that broke, or was never made."""
    return UnavailableError(f"the API server at {host} doesn't answer: {error}")
