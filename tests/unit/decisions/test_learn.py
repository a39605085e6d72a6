"""What workers measured becomes a profile: slowly, bounded, and only when it says something new."""

from dataclasses import replace
from math import log

import pytest

from inference_operator.decisions.learn import learned
from inference_operator.domain.cluster import Model
from inference_operator.domain.model import InferenceModelStatus, Profile
from tests.builders import DIGEST, NOW, a_fact, a_model, a_profile, whole


def learn(model: Model | None, rate: float | None = 1.0, *, accelerator: str = "cpu") -> InferenceModelStatus | None:
    return learned(model, a_fact(items_per_second=rate), accelerator=accelerator, now=NOW)


def only(status: InferenceModelStatus | None) -> Profile:
    assert status is not None
    (profile,) = status.profiles
    return profile


def test_a_first_measurement_is_taken_as_it_is() -> None:
    profile = only(learn(a_model(), 12.345678))

    assert profile == Profile(
        digest=DIGEST,
        accelerator="cpu",
        batch_size=1,
        items_per_second=12.35,
        load_seconds=2.0,
        memory_bytes=2**28,
        samples=1,
        observed_time=whole(NOW),
    )


def test_a_further_one_moves_the_profile_a_little() -> None:
    profile = only(learn(a_model(profiles=[a_profile(items_per_second=10.0)]), 20.0))

    assert (profile.items_per_second, profile.samples) == (13.0, 2)


def test_what_is_near_says_nothing_new() -> None:
    assert learn(a_model(profiles=[a_profile(items_per_second=10.0)]), 12.0) is None


@pytest.mark.parametrize(("model", "rate", "accelerator"), [(None, 1.0, "cpu"), (a_model(), None, "cpu"), (a_model(), 1.0, "")])
def test_nothing_is_learned_without_model_rate_or_class(model: Model | None, rate: float | None, accelerator: str) -> None:
    assert learn(model, rate, accelerator=accelerator) is None


def test_other_files_classes_and_batch_sizes_keep_their_own_profiles() -> None:
    others = [a_profile("gpu"), a_profile("cpu", batch_size=8), a_profile("cpu", digest="sha256:" + "b" * 64)]
    status = learn(a_model(profiles=others), 5.0)

    assert status is not None and len(status.profiles) == 4
    assert all(other in status.profiles for other in others)


def test_the_oldest_profile_makes_room() -> None:
    many = [a_profile("gpu", batch_size=n, observed_ago=n) for n in range(1, 129)]
    status = learn(a_model(profiles=many))

    assert status is not None and len(status.profiles) == 128
    assert {p.batch_size for p in status.profiles if p.accelerator == "gpu"} == set(range(1, 128))


def test_the_order_is_always_the_same() -> None:
    profiles = [a_profile("gpu"), a_profile("cpu", batch_size=8)]
    here, there = a_model(profiles=profiles), a_model(profiles=profiles[::-1])

    assert learn(here) == learn(there)
    assert learn(replace(here, generation=4)) != learn(here)


def test_measurements_that_differ_are_told_as_a_spread() -> None:
    profile = only(learn(a_model(profiles=[a_profile(items_per_second=10.0)]), 20.0))

    assert profile.spread == pytest.approx(0.3 * log(2), rel=1e-3)


def test_one_measurement_that_is_far_off_does_not_carry_the_profile_away() -> None:
    known = replace(a_profile(items_per_second=10.0), samples=9)

    assert only(learn(a_model(profiles=[known]), 1000.0)).items_per_second == pytest.approx(13.0)


def test_what_was_learned_long_ago_counts_less() -> None:
    fresh, stale = (a_profile(items_per_second=10.0, observed_ago=days * 86400) for days in (0.1, 70))
    after_fresh, after_stale = (only(learn(a_model(profiles=[known]), 20.0)).items_per_second for known in (fresh, stale))

    assert after_fresh == 13.0
    assert after_stale > 19.9
