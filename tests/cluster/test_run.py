"""The settings of `make run`, out of what the chart really renders."""

import json
from pathlib import Path

import pytest

from dev.run import settings
from inference_operator.settings import load_settings
from tests.cluster.operators import render

pytestmark = pytest.mark.cluster


def test_the_charts_settings_fit_an_operator_outside_of_the_cluster(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(settings(render("configmap.yaml"), port=9090)))

    loaded = load_settings(file)

    assert (loaded.http_port, loaded.custom_metrics.enabled, loaded.custom_metrics.port) == (9090, True, 0)
    assert (loaded.keda_scaler.enabled, loaded.policy.path) == (False, "")
    assert loaded.worker_image.startswith("localhost/inference-worker:")
