"""A scripted API server and a ward of operators for each test; the nursery is shared, since importing is what takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.component.api_server import ApiServer
from tests.component.doors import Counting
from tests.component.kubelet import Kubelet
from tests.component.operators import Nursery, Ward

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.end()


@pytest.fixture
def ward(nursery: Nursery, tmp_path: Path) -> Iterator[Ward]:
    made = Ward(nursery, tmp_path)
    yield made
    made.end()


@pytest.fixture
async def server(ward: Ward) -> AsyncIterator[ApiServer]:
    made = ApiServer()
    await made.start()
    yield made
    # Operators first: one that loses its server would only fill its log.
    ward.end()
    await made.stop()


@pytest.fixture
def kubelet(server: ApiServer) -> Kubelet:
    return Kubelet(server)


@pytest.fixture
async def workers() -> AsyncIterator[Counting]:
    made = Counting()
    yield made
    await made.end()
