"""The model that every worker's image has: `helm test` and the chart's notes run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import inference_worker
from inference_operator.install_check import MODEL
from inference_protocol.messages import BatchTask
from tests.process.harness import a_config

if TYPE_CHECKING:
    from tests.process.harness import Place

IN_IMAGE = "/opt/app/inference_worker"


def test_a_worker_runs_the_model_of_its_own_image(place: Place) -> None:
    """In the checkout the worker's package lies elsewhere; the rest of the URI is the image's."""
    assert MODEL.startswith(f"file://{IN_IMAGE}/")
    here = MODEL.replace(IN_IMAGE, inference_worker.__path__[0])

    ended = place.run(a_config(here, task=BatchTask(input_data='{"x": [1, 2, 3]}')))

    assert ended.report is not None
    assert ended.report.outcome == "Succeeded", ended.report.message
    assert ended.report.output == '{"y": [2.0, 3.0, 4.0]}\n'
