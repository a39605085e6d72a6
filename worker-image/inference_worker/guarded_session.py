"""The session for traces to where a job says: to no host that a download may not come from, and by no proxy."""

import socket
from collections.abc import Sequence
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from inference_worker.outbound import connected


def guarded_session(allowed: Sequence[str]) -> requests.Session:
    """A session that connects to hosts of the list and to no forbidden address; each request is checked anew."""
    session = requests.Session()
    # A proxy would look names up by itself, and files of the image could name passwords.
    session.trust_env = False
    adapter = _Adapter(allowed)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


class _Adapter(HTTPAdapter):
    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = allowed
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Have every connection made by us."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _pools(self._allowed)


def _pools(allowed: Sequence[str]) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return connected(self.host, self.port or 80, allowed=allowed, told="traces")

    class Tls(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return connected(self.host, self.port or 443, allowed=allowed, told="traces")

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = Tls

    return {"http": PlainPool, "https": TlsPool}
