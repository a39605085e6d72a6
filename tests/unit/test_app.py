"""The process's start: what it says of its settings before it does anything."""

import gc
import logging
from typing import Any

import pytest

from inference_operator import app
from inference_operator.observability import logs


async def ended_at_once(*_: Any) -> None:
    raise app.StoppedError


def test_the_start_warns_of_classes_whose_jobs_would_not_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The default installation has a class gpu with the image for CPUs, and nothing said so before its first job had failed."""
    monkeypatch.delenv(app.CONFIG_VARIABLE, raising=False)
    monkeypatch.setattr(app, "connect", lambda: None)
    monkeypatch.setattr(app, "run", ended_at_once)
    monkeypatch.setattr(app, "GC_THRESHOLDS", gc.get_threshold())
    monkeypatch.setattr(logs, "set_up", lambda *_: None)

    with caplog.at_level(logging.WARNING):
        assert app.main() == 0

    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["accelerators.gpu has no image"]
