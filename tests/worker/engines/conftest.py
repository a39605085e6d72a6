"""Every back end there is, each opened once for a module.

PyTorch and tritonserver take gigabytes to fetch: they are there with `make test-engines`, where what is missing fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dev.venv import all_engines
from inference_worker.engines import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inference_worker.engine import Engine
    from tests.worker.engines.makers import Maker
    from tests.worker.tritons import Triton

# What they import is not there without.
collect_ignore_glob = [] if all_engines() else ["test_*.py"]


@pytest.fixture(scope="module")
def tritonserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    from tests.worker.tritons import Triton

    made = Triton(tmp_path_factory.mktemp("tritonserver"))
    yield made.wait()
    made.end()


@pytest.fixture(scope="module", params=sorted(ENGINES))
def maker(request: pytest.FixtureRequest) -> Maker:
    from tests.worker.engines.makers import Maker

    told = request.getfixturevalue("tritonserver").told if request.param == "triton" else None
    return Maker(request.param, told)


@pytest.fixture(scope="module")
def engine(maker: Maker) -> Iterator[Callable[[str], Engine]]:
    """A model by its name, opened when it is first asked for."""
    opened: dict[str, Engine] = {}

    def get(name: str) -> Engine:
        if name not in opened:
            opened[name] = maker.open(name)
        return opened[name]

    yield get
    for one in opened.values():
        one.close()
