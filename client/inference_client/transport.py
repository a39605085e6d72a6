"""The way to the API server, by kubeconfig as kubectl has it: contexts, client certificates, tokens, exec credentials, proxies.

The only module that knows the `kubernetes` package. `Transport` blocks, `AsyncTransport` runs in an event loop.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import aiohttp
import urllib3
from kubernetes import aio, client, config
from kubernetes.aio import config as aio_config
from kubernetes.config.config_exception import ConfigException

from inference_client.calls import Call, Raw
from inference_client.errors import ConfigurationError, UnavailableError, refusal

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
# What a watch may hold in one event: an object has at most 1.5 MiB in etcd, and JSON is longer.
_LINE_LIMIT = 8 << 20


class Transport:
    """Carries calls out, one after the other."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    @classmethod
    def from_kubeconfig(cls, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """As kubectl: KUBECONFIG or ~/.kube/config, else the pod's own account. Raises ConfigurationError."""
        try:
            if _inside(kubeconfig):
                settings = client.Configuration()
                config.load_incluster_config(settings)
                return cls(client.ApiClient(settings), _own_namespace())
            made = config.new_client_from_config(config_file=kubeconfig, context=context)
        except (ConfigException, OSError) as error:
            raise _unconfigured(kubeconfig, error) from error
        return cls(made, _namespace(kubeconfig, context))

    def close(self) -> None:
        """End the connections."""
        self.api.close()

    def send(self, call: Call) -> Raw:
        """The answer. Raises ClientError."""
        try:
            prepared = self.api.param_serialize(*_prepared(call), auth_settings=["BearerToken"])
            response = self.api.call_api(*prepared, _request_timeout=(10.0, call.timeout_seconds))
            if not 200 <= response.status <= 299:
                raise refusal(response.status, response.read())
            if call.first_change:
                with response.response as stream:
                    return _event(next(_lines(stream), b""))
            body = response.read()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _unreachable(self.api.configuration.host, error) from error
        return {"text": body.decode(errors="replace")} if call.text else _document(body)

    def lines(self, call: Call) -> Iterator[bytes]:
        """The lines of an answer that goes on, for example of a log. Raises ClientError."""
        try:
            prepared = self.api.param_serialize(*_prepared(call), auth_settings=["BearerToken"])
            response = self.api.call_api(*prepared, _request_timeout=(10.0, call.timeout_seconds))
            if not 200 <= response.status <= 299:
                raise refusal(response.status, response.read())
            with response.response as stream:
                yield from _lines(stream)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _unreachable(self.api.configuration.host, error) from error


class AsyncTransport:
    """The same in an event loop."""

    def __init__(self, api: aio.client.ApiClient, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    @classmethod
    async def from_kubeconfig(cls, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """As kubectl: KUBECONFIG or ~/.kube/config, else the pod's own account. Raises ConfigurationError."""
        try:
            if _inside(kubeconfig):
                settings = aio.client.Configuration()
                aio_config.load_incluster_config(settings)
                return cls(aio.client.ApiClient(settings), _own_namespace())
            made = await aio_config.new_client_from_config(config_file=kubeconfig, context=context)
        except (ConfigException, aio_config.ConfigException, OSError) as error:
            raise _unconfigured(kubeconfig, error) from error
        return cls(made, _namespace(kubeconfig, context))

    async def close(self) -> None:
        """End the connections."""
        await self.api.close()

    async def send(self, call: Call) -> Raw:
        """The answer. Raises ClientError."""
        try:
            prepared = await self.api.param_serialize(*_prepared(call), auth_settings=["BearerToken"])
            response = await self.api.call_api(*prepared, _request_timeout=call.timeout_seconds)
            if not 200 <= response.status <= 299:
                raise refusal(response.status, await response.read())
            if call.first_change:
                try:
                    return _event(await response.response.content.readline())
                finally:
                    response.response.close()
            body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(self.api.configuration.host, error) from error
        return {"text": body.decode(errors="replace")} if call.text else _document(body)


def _inside(kubeconfig: str | None) -> bool:
    """Whether only the account of this pod leads to a cluster."""
    if kubeconfig is not None or "KUBECONFIG" in os.environ or Path("~/.kube/config").expanduser().exists():
        return False
    return _SERVICE_ACCOUNT.exists()


def _own_namespace() -> str:
    return _SERVICE_ACCOUNT.read_text().strip()


def _namespace(kubeconfig: str | None, context: str | None) -> str:
    contexts, active = config.list_kube_config_contexts(kubeconfig)
    chosen = next((one for one in contexts if one["name"] == context), active)
    return str(chosen["context"].get("namespace") or "default")


def _prepared(call: Call) -> tuple[str, str, None, list[tuple[str, str]], dict[str, str], Any]:
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


def _document(body: bytes) -> Raw:
    try:
        found: Raw = json.loads(body)
    except ValueError as error:
        raise UnavailableError(f"the API server's answer is no JSON: {body[:200]!r}") from error
    return found


def _event(line: bytes) -> Raw:
    if not line.strip():
        return {}
    event = _document(line)
    if event.get("type") == "ERROR":
        status = event.get("object", {})
        raise refusal(int(status.get("code", 500)), status)
    return event


def _unreachable(host: str, error: Exception) -> UnavailableError:
    return UnavailableError(f"the API server at {host} doesn't answer: {error}")


def _unconfigured(kubeconfig: str | None, error: Exception) -> ConfigurationError:
    where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    return ConfigurationError(f"{where}: {error}; name another file by --kubeconfig or KUBECONFIG, or another --context")
