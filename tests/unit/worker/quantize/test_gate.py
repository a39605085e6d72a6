"""The gate: it passes what is as good as the original, and refuses in every case of doubt."""

from __future__ import annotations

import numpy as np
import pytest

from inference_worker.quantize import Bounds, Fault, QuantizeError, gate
from inference_worker.quantize.records import Judgement

RNG = np.random.default_rng(4)
ROWS = 200
CLASSES = RNG.integers(0, 5, ROWS)
BOUNDS = Bounds()


def scores(classes: np.ndarray) -> np.ndarray:
    """Probabilities [N, 5] that favour these classes."""
    raw = np.where(np.arange(5) == classes[:, None], 6.0, 1.0).astype(np.float32)
    return raw / raw.sum(axis=1, keepdims=True)


def wrong_in(number: int, classes: np.ndarray = CLASSES) -> np.ndarray:
    """The classes with as many of them changed."""
    return np.where(np.arange(len(classes)) < number, (classes + 1) % 5, classes)


def judged(before: object, after: object, labels: np.ndarray | None = None, bounds: Bounds = BOUNDS, name: str = "y") -> Judgement:
    first, second = (found if isinstance(found, dict) else {name: np.asarray(found)} for found in (before, after))
    return gate.judge(first, second, labels, bounds, rows=ROWS)


def test_accuracy_may_fall_by_the_bound_and_no_further() -> None:
    before = scores(wrong_in(4))

    at, beyond = (judged(before, scores(wrong_in(number)), CLASSES) for number in (6, 7))

    assert (at.passed, at.before, at.after) == (True, 0.98, 0.97)
    assert not beyond.passed
    assert "0.9800 before and 0.9650 after" in beyond.message


def test_a_variant_that_is_better_passes() -> None:
    assert judged(scores(wrong_in(9)), scores(CLASSES), CLASSES).passed


def test_the_output_that_answers_the_labels_is_the_one_compared() -> None:
    beside = RNG.random((ROWS, 3)).astype(np.float32)

    found = judged({"beside": beside, "class": wrong_in(2)}, {"beside": beside, "class": wrong_in(90)}, CLASSES)

    assert set(found.outputs) == {"class"}
    assert not found.passed


def test_labels_in_another_order_judge_nothing() -> None:
    shuffled = np.random.default_rng(0).permutation(CLASSES)

    found = judged(scores(CLASSES), scores(wrong_in(200)), shuffled)

    assert not found.passed
    assert "same order" in found.message


def test_labels_of_one_class_judge_nothing() -> None:
    same = np.zeros(ROWS, dtype=np.int64)

    assert not judged(scores(same), scores(same), same).passed


def test_classes_by_name_are_compared_with_names() -> None:
    names = np.array(["a", "b", "c", "d", "e"])
    before, after = names[CLASSES].astype(object), names[wrong_in(1)].astype(object)

    found = judged(before, after, names[CLASSES])

    assert (found.passed, found.after) == (True, 0.995)


def test_a_chance_is_compared_with_two_classes() -> None:
    truth = CLASSES % 2
    before = np.where(truth, 0.9, 0.1).astype(np.float32)[:, None]

    assert judged(before, before * np.float32(1.2), truth).passed
    assert not judged(before, 1 - before, truth).passed


def test_labels_that_no_output_answers_are_refused() -> None:
    with pytest.raises(QuantizeError) as caught:
        judged(np.zeros((ROWS, 2, 2), dtype=np.float32), np.zeros((ROWS, 2, 2), dtype=np.float32), CLASSES)

    assert caught.value.fault == Fault.ROWS_UNFIT


def test_without_labels_the_classes_of_both_are_compared() -> None:
    at, beyond = (judged(scores(CLASSES), scores(wrong_in(number))) for number in (2, 3))

    assert (at.kind, at.passed, at.before, at.after) == ("agreement", True, 1.0, 0.99)
    assert not beyond.passed


def test_scores_by_name_are_compared_by_class_and_other_values_by_size() -> None:
    raw = scores(CLASSES) * 7 - 3

    assert judged(raw, raw * 2, name="logits").passed
    assert not judged(raw, raw * 2, name="metres").passed
    assert judged(raw, raw * np.float32(1.005), name="metres").passed
    assert judged(raw, raw * np.float32(1.02), name="metres").after == pytest.approx(0.98, abs=1e-4)


def test_a_name_alone_does_not_make_a_map_of_values_scores() -> None:
    maps = RNG.random((ROWS, 4, 4)).astype(np.float32)

    assert not judged(maps, maps * 2, name="class_map").passed


def test_every_output_has_to_agree() -> None:
    found = judged({"a": scores(CLASSES), "b": CLASSES}, {"a": scores(CLASSES), "b": wrong_in(50)})

    assert not found.passed
    assert found.outputs == {"a": 1.0, "b": 0.75}
    assert "'b'" in found.message


def test_an_output_that_never_changes_is_no_evidence_but_does_no_harm() -> None:
    still = np.full(ROWS, 3)

    assert judged({"a": scores(CLASSES), "n": still}, {"a": scores(CLASSES), "n": still}).passed
    assert not judged({"n": still}, {"n": still}).passed


@pytest.mark.parametrize("same", [scores(np.zeros(ROWS, dtype=np.int64)), np.zeros((ROWS, 3)), 1000 + RNG.random((ROWS, 3))])
def test_rows_on_which_a_constant_would_pass_judge_nothing(same: np.ndarray) -> None:
    found = judged(same, same)

    assert not found.passed
    assert "varied" in found.message


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("labels", [None, CLASSES])
def test_what_is_no_number_fails_whoever_gives_it(bad: float, labels: np.ndarray | None) -> None:
    broken = scores(CLASSES)
    broken[3, 1] = bad

    by_variant, by_original = judged(scores(CLASSES), broken, labels), judged(broken, scores(CLASSES), labels)

    assert not by_variant.passed and "the variant" in by_variant.message
    assert not by_original.passed and "the original" in by_original.message


@pytest.mark.parametrize("other", [scores(CLASSES)[:, :4], scores(CLASSES).astype(np.float64)])
def test_another_shape_or_type_fails(other: np.ndarray) -> None:
    assert not judged(scores(CLASSES), other).passed


def test_a_missing_output_fails() -> None:
    assert not judged({"a": scores(CLASSES)}, {"b": scores(CLASSES)}).passed
