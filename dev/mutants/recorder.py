"""A pytest plugin: write down which functions of the product each test runs, so that a mutant is tried on those tests alone.

RECORD_TO names the file, JSON: test -> [seconds, functions as module:function, whether it failed]. What other processes run is not
seen.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import pytest

RECORD_TO = "MUTANTS_RECORD_TO"
SOURCES = ("operator", "protocol", "worker-image")


class _Recorder:
    def __init__(self) -> None:
        self._prefixes = tuple(f"{Path.cwd() / source}{os.sep}" for source in SOURCES)
        self._files: dict[str, str | None] = {}
        self._seen: set[tuple[str, str]] = set()
        self._failed: set[str] = set()
        self.tests: dict[str, tuple[float, list[str], bool]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None]:
        self._seen = set()
        begun = time.perf_counter()
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        yield
        sys.setprofile(None)
        threading.setprofile(None)
        found = {f"{module}:{name}" for file, name in self._seen if (module := self._module(file)) is not None}
        self.tests[item.nodeid] = (round(time.perf_counter() - begun, 3), sorted(found), item.nodeid in self._failed)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        Path(os.environ[RECORD_TO]).write_text(json.dumps(self.tests))

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._seen.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    def _module(self, file: str) -> str | None:
        if file not in self._files:
            prefix = next((prefix for prefix in self._prefixes if file.startswith(prefix)), None)
            self._files[file] = None if prefix is None else ".".join(Path(file.removeprefix(prefix)).with_suffix("").parts)
        return self._files[file]


def pytest_configure(config: pytest.Config) -> None:
    if RECORD_TO in os.environ:
        config.pluginmanager.register(_Recorder())
