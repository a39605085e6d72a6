"""A client of the API server with the standard library alone: enough for set-up and the agent."""

import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from dev.cluster.layout import ControlPlane

Json = dict[str, Any]
_MERGE = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_MANAGER = "inference-operator-dev"


class ApiError(Exception):
    """The server refused a request, or could not be reached (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Api:
    """One identity at one API server; every call opens a connection of its own."""

    host: str
    port: int
    authority: Path
    certificate: Path
    key: Path
    timeout_seconds: float = 10.0

    def get(self, path: str) -> Json:
        """Read an object or a list."""
        return self._call("GET", path)

    def create(self, path: str, body: Json) -> Json:
        """Create an object in a collection."""
        return self._call("POST", path, body, "application/json")

    def merge(self, path: str, body: Json) -> Json:
        """Patch an object with a strategic merge."""
        return self._call("PATCH", path, body, _MERGE)

    def apply(self, path: str, body: Json) -> Json:
        """Create or update an object as the owner of the given fields."""
        query = urlencode({"fieldManager": _MANAGER, "force": "true"})
        return self._call("PATCH", f"{path}?{query}", body, _APPLY)

    def delete(self, path: str) -> None:
        """Delete an object; one that is already gone is fine."""
        try:
            self._call("DELETE", path)
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def ready(self) -> bool:
        """Tell whether the server says that it is ready."""
        try:
            self._call("GET", "/readyz")
        except ApiError:
            return False
        return True

    def watch(self, path: str, *, version: str, seconds: int = 240) -> Iterator[Json]:
        """Yield the changes of a collection until the server ends the stream."""
        query = urlencode(
            {
                "watch": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(seconds),
                "allowWatchBookmarks": "true",
            }
        )
        separator = "&" if "?" in path else "?"
        connection = self._connect(timeout_seconds=seconds + 30)
        try:
            connection.request("GET", f"{path}{separator}{query}")
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise ApiError(response.status, response.read().decode(errors="replace"))
            for line in response:
                event: Json = json.loads(line)
                yield event
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, str(error)) from error
        finally:
            connection.close()

    def _call(self, method: str, path: str, body: Json | None = None, content: str = "") -> Json:
        connection = self._connect(timeout_seconds=self.timeout_seconds)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, body=data, headers={"Content-Type": content})
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, str(error)) from error
        finally:
            connection.close()
        if response.status >= http.client.BAD_REQUEST:
            raise ApiError(response.status, text)
        is_object = text.startswith("{")
        answer: Json = json.loads(text) if is_object else {}
        return answer

    def _connect(self, *, timeout_seconds: float) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(str(self.certificate), str(self.key))
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_seconds, context=context)


def api_as(plane: ControlPlane, identity: str) -> Api:
    """Return a client that speaks as one of the identities made by `pki`."""
    folder = plane.layout.pki
    return Api(
        host=plane.host,
        port=plane.api_port,
        authority=folder / "ca.crt",
        certificate=folder / f"{identity}.crt",
        key=folder / f"{identity}.key",
    )
