"""A client of the real API server for tests: one kept connection, answers as they come, refusals as values."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

Raw = dict[str, Any]

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON = "application/json"
INFERENCE = "/apis/inference.myorg/v1"

IDLE_SECONDS = 30.0
"""A connection kept for longer than this without a word is not trusted: the API server closes idle ones after 90 s."""


@dataclass(frozen=True)
class Answer:
    """Status code and body."""

    code: int
    body: Raw

    @property
    def ok(self) -> bool:
        return self.code < 300

    @property
    def message(self) -> str:
        """The server's words; empty for a success."""
        return "" if self.ok else str(self.body.get("message", self.body))


class Client:
    """Speaks as the user of a kubeconfig, or as the bearer of a token."""

    def __init__(self, kubeconfig: Path, *, token: str | None = None) -> None:
        document = json.loads(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._address = cluster["server"].removeprefix("https://")
        self._tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        self._token = token
        if token is None:
            with tempfile.NamedTemporaryFile() as certificate:
                for part in ("client-certificate-data", "client-key-data"):
                    certificate.write(base64.b64decode(user[part]))
                certificate.flush()
                self._tls.load_cert_chain(certificate.name)
        self._connection: http.client.HTTPSConnection | None = None
        self._used = 0.0

    def call(self, method: str, path: str, body: Raw | list[Raw] | None = None, *, kind: str = JSON, **query: str) -> Answer:
        """One request."""
        connection = self._open()
        headers = {"Content-Type": kind, "Accept": JSON}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        target = f"{path}?{urlencode(query)}" if query else path
        try:
            connection.request(method, target, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        self._used = time.monotonic()
        return Answer(response.status, json.loads(text) if text.startswith(b"{") else {"message": text.decode(errors="replace")})

    def close(self) -> None:
        """Ends the kept connection; the next call opens one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> http.client.HTTPSConnection:
        if self._connection is not None and time.monotonic() - self._used > IDLE_SECONDS:
            self.close()
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(self._address, timeout=60, context=self._tls)
        return self._connection

    def get(self, path: str) -> Raw:
        """An object or a list that must be there."""
        return _must(self.call("GET", path))

    def create(self, path: str, body: Raw) -> Raw:
        """POST that must succeed."""
        return _must(self.call("POST", path, body))

    def merge(self, path: str, body: Raw, **query: str) -> Raw:
        """A merge patch that must succeed."""
        return _must(self.call("PATCH", path, body, kind=MERGE, **query))

    def apply(self, path: str, body: Raw, *, manager: str, force: bool = False) -> Answer:
        """Server-side apply, refused or not."""
        return self.call("PATCH", path, body, kind=APPLY, fieldManager=manager, force=str(force).lower())

    def replace_spec(self, path: str, spec: Raw) -> Answer:
        """The whole spec anew, whatever version the object has by now."""
        patch = [{"op": "replace", "path": "/spec", "value": spec}]
        return self.call("PATCH", path, patch, kind="application/json-patch+json")

    def delete(self, path: str, body: Raw | None = None) -> Answer:
        """DELETE, refused or not."""
        return self.call("DELETE", path, body)


def _must(answer: Answer) -> Raw:
    assert answer.ok, f"{answer.code}: {answer.message}"
    return answer.body


def jobs(namespace: str) -> str:
    return f"{INFERENCE}/namespaces/{namespace}/inferencejobs"


def models(namespace: str) -> str:
    return f"{INFERENCE}/namespaces/{namespace}/inferencemodels"


def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"
