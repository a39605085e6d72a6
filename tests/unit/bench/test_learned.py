"""The learned policy from training to the operator's hands: the same numbers are seen, and the file answers as what was trained."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from bench.learned.export import exported
from bench.learned.features import State, rows
from bench.learned.policy import Judged
from bench.learned.run import untrained
from bench.scheduling.simulate import Ours, _at
from bench.scheduling.workload import generate
from inference_operator.observability import metrics
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Fleet
from inference_operator.settings import CostWeights
from inference_operator.shadow.comparison import Verdict, shown
from inference_operator.shadow.controller import Shadow
from inference_operator.shadow.features import NAMES, RECENT_SECONDS, table
from inference_operator.shadow.policy import load_policy
from tests.builders import NOW, a_node, a_request, an_option


@pytest.fixture(scope="module")
def trained() -> tuple[HistGradientBoostingClassifier, np.ndarray]:
    """On made-up rows: that it learns something from them is all that counts here."""
    random = np.random.default_rng(7)
    seen = random.lognormal(0, 1, (600, len(NAMES)))
    return untrained().set_params(max_iter=30).fit(seen, (seen[:, 0] * seen[:, 2] > seen[:, 4]).astype(float)), seen


def test_the_file_scores_as_what_was_trained(trained: tuple[HistGradientBoostingClassifier, np.ndarray], tmp_path: Path) -> None:
    model, seen = trained
    path = tmp_path / "policy.onnx"
    path.write_bytes(exported(model, 0.25))

    policy = load_policy(path)

    expected = model.predict_proba(seen)[:, 1]
    assert expected.std() > 0.2
    assert policy.threshold == 0.25
    assert policy.scores(seen) == pytest.approx(expected.tolist(), abs=1e-6)
    assert policy.scores(seen[:1]) == pytest.approx(expected[:1].tolist(), abs=1e-6)


def test_the_operator_asks_what_was_trained(trained: tuple[HistGradientBoostingClassifier, np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(exported(trained[0], 0.5))
    options = (an_option("gpu", seconds=12, gpu=1), an_option("cpu", seconds=40))
    needs = tuple(a_request(f"n{number}", *options, deadline_in=20 + 30 * number) for number in range(20))
    fleet = Fleet((a_node("gpu-1", cpu="2", gpu=1),), (), needs)
    before = counted()

    # Time stands, so that a slow machine skips nothing.
    Shadow(load_policy(path), lambda look: look(), lambda: 0.0).watch(fleet, schedule(fleet, CostWeights(), NOW), NOW)

    found = counted() - before
    assert found.total() == 20
    assert not found["skipped"]


def counted() -> Counter[str]:
    outcomes = [outcome.value for outcome in Verdict]
    return Counter({one: int(metrics.policy_decisions_total.labels(one)._value.get()) for one in outcomes})


def test_the_operator_sees_what_was_trained_on() -> None:
    compared = 0

    def watch(state: State, world: Judged) -> None:
        nonlocal compared
        _, mine = rows(state)
        lately = sum(0 <= state.now - arrival <= RECENT_SECONDS for arrival in state.arrivals)
        needs, scene = shown(world.fleet_at(Ours(preemptions_per_job=0), state.now), _at(state.now), lately)
        assert scene is not None
        numbers = sorted(state.waiting)
        theirs = table(scene)[np.argsort([int(need.key.name) for need in needs])]
        assert [int(need.key.name) for need in sorted(needs, key=lambda need: int(need.key.name))] == numbers
        assert theirs == pytest.approx(mine, rel=1e-5, abs=1e-6)
        compared += 1

    Judged(generate(3, count=80, load=1.3, variation=4.0), watch=watch).run(Ours(preemptions_per_job=0))

    assert compared > 50
