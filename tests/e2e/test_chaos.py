"""A short story of faults in each run of the tests; `make chaos` plays long ones."""

import os
from pathlib import Path

from bench.failures.stage import stage
from examples.demo.cluster import Kubectl
from tests.chaos.run import play
from tests.chaos.story import QUICK, draw
from tests.chaos.volume import output_of, small

SEED = int(os.environ.get("CHAOS_SEED", "7"))
FAULTS = 5


def test_a_short_story_of_faults_loses_nothing(kube: Kubectl, tmp_path: Path) -> None:
    del kube
    story = draw(SEED, FAULTS, QUICK)
    with stage(tmp_path, plain=False, options=()) as at, small(output_of(at.volume)):
        found = play(at, story, SEED)

    assert found.wrong == [], "\n".join([*found.wrong, "the story:", *map(str, story)])
    assert found.batches >= 2 and found.asked > 100
