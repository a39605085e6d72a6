"""Every back end there is, each opened once for a module.

PyTorch takes gigabytes to fetch: it is there with `make test-engines`. Triton's Python back end is of the time of numpy 1.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from dev.tritonserver import NEWEST_PYTHON
from dev.venv import all_engines
from inference_worker.engines.registry import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inference_worker.engines.engine import Engine
    from tests.process.engines.makers import Maker
    from tests.process.tritons import Triton

MISSING = {
    *(() if all_engines() else ("torchscript",)),
    *(() if sys.version_info[:2] <= NEWEST_PYTHON else ("triton",)),
}
collect_ignore_glob = [f"test_{name}_*.py" for name in MISSING]


@pytest.fixture(scope="module")
def tritonserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    from tests.process.tritons import Triton

    made = Triton(tmp_path_factory.mktemp("tritonserver"))
    yield made.wait()
    made.end()


@pytest.fixture(scope="module", params=sorted(ENGINES.keys() - MISSING))
def maker(request: pytest.FixtureRequest) -> Maker:
    from tests.process.engines.makers import Maker

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
