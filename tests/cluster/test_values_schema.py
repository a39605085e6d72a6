"""The pod fields in values.schema.json are those of the API server; UPDATE_SCHEMA=1 writes them anew."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dev.values_schema import SCHEMA_FILE, kubernetes_definitions, with_definitions, written_definitions

if TYPE_CHECKING:
    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster

GROUPS = ("api/v1", "apis/apps/v1", "apis/networking.k8s.io/v1")


def test_the_fields_of_pods_are_those_of_kubernetes(cluster: Cluster) -> None:
    openapi: dict[str, Raw] = {}
    for group in GROUPS:
        openapi |= cluster.client.get(f"/openapi/v3/{group}")["components"]["schemas"]
    found, text = kubernetes_definitions(openapi), SCHEMA_FILE.read_text()

    if os.environ.get("UPDATE_SCHEMA"):
        SCHEMA_FILE.write_text(with_definitions(text, found))
    assert found == written_definitions(SCHEMA_FILE.read_text())
