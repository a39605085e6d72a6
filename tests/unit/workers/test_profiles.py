"""What workers measured becomes a profile: slowly, bounded, and only when it says something new."""

from dataclasses import replace
from math import log

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inference_operator.accelerators import CPU_PROVIDER, CUDA_PROVIDER, AcceleratorClass, default_classes
from inference_operator.api.job import Backend
from inference_operator.api.model import InferenceModelStatus, Profile
from inference_operator.scheduling.estimate import find_profile, key_of, measured
from inference_operator.state.objects import Model
from inference_operator.workers.profiles import learned
from inference_protocol.messages import ModelFacts
from tests.builders import DIGEST, NOW, OTHER_DIGEST, a_fact, a_model, a_profile, whole

CLASSES = default_classes()


def learn(model: Model | None, rate: float | None = 1.0, *, accelerator: str = "cpu") -> InferenceModelStatus | None:
    return learned(model, a_fact(items_per_second=rate), accelerator=accelerator, classes=CLASSES, now=NOW)


def only(status: InferenceModelStatus | None) -> Profile:
    assert status is not None
    (profile,) = status.profiles
    return profile


def test_a_first_measurement_is_taken_as_it_is() -> None:
    profile = only(learn(a_model(), 12.345678))

    assert profile == Profile(
        digest=DIGEST,
        accelerator="cpu",
        backend=Backend.ONNX,
        batch_size=1,
        items_per_second=12.35,
        load_seconds=2.0,
        memory_bytes=2**28,
        samples=1,
        observed_time=whole(NOW),
    )


def test_memory_of_a_device_is_the_most_that_was_needed_and_more_of_it_is_news() -> None:
    def told(model: Model, needs: int) -> InferenceModelStatus | None:
        facts = a_fact(provider=CUDA_PROVIDER, device_bytes=needs)
        return learned(model, facts, accelerator="gpu", classes=CLASSES, now=NOW)

    known = replace(a_model(), status=told(a_model(), 0) or a_model().status)
    for needs, now_known in ((500, 500), (400, None), (510, None), (900, 900)):
        # The rate is the same each time: nobody can be a co-located model before its need is known.
        news = told(known, needs)
        assert (only(news).device_bytes if news is not None else None) == now_known
        known = replace(known, status=news or known.status)


@pytest.mark.parametrize("provider", [CPU_PROVIDER, CUDA_PROVIDER])
def test_a_worker_that_fell_back_to_the_cpu_teaches_nothing_of_its_class(provider: str) -> None:
    """Its speed stayed the profile of the class, by which each further job was placed there or elsewhere."""
    mixed = AcceleratorClass(execution_providers=(CUDA_PROVIDER, CPU_PROVIDER))
    found = learned(a_model(), a_fact(provider=provider), accelerator="x", classes={"x": mixed}, now=NOW)

    assert (found is None) is (provider == CPU_PROVIDER)


def test_a_further_one_moves_the_profile_a_little() -> None:
    profile = only(learn(a_model(profiles=[a_profile(items_per_second=10.0)]), 20.0))

    assert (profile.items_per_second, profile.samples) == (13.0, 2)


def test_what_is_near_says_nothing_new() -> None:
    assert learn(a_model(profiles=[a_profile(items_per_second=10.0)]), 12.0) is None


@pytest.mark.parametrize(("model", "rate", "accelerator"), [(None, 1.0, "cpu"), (a_model(), None, "cpu"), (a_model(), 1.0, "")])
def test_nothing_is_learned_without_model_rate_or_class(model: Model | None, rate: float | None, accelerator: str) -> None:
    assert learn(model, rate, accelerator=accelerator) is None


FILES = st.sampled_from([DIGEST, OTHER_DIGEST])
BACKENDS = st.sampled_from([Backend.ONNX, Backend.TORCHSCRIPT, Backend.TRITON])
KNOWN = st.builds(
    a_profile,
    st.sampled_from(["cpu", "gpu"]),
    digest=FILES,
    variant_of=st.none() | FILES,
    backend=BACKENDS,
    batch_size=st.integers(1, 3),
)
FACTS = st.builds(
    a_fact,
    items_per_second=st.floats(3.0, 100.0),
    digest=FILES,
    variant=st.none() | st.sampled_from(["sha256:" + c * 64 for c in "cd"]),
    backend=BACKENDS.map(str),
)


@given(st.lists(KNOWN, max_size=8, unique_by=key_of), FACTS)
@example([a_profile(backend=Backend.TRITON), a_profile(batch_size=8)], a_fact(items_per_second=5.0))
@example([a_profile(), a_profile(digest=OTHER_DIGEST)], a_fact(items_per_second=5.0, variant=OTHER_DIGEST))
def test_what_is_learned_is_found_again_and_all_others_keep_their_own(known: list[Profile], facts: ModelFacts) -> None:
    status = learned(a_model(profiles=known), facts, accelerator="cpu", classes=CLASSES, now=NOW)

    assert status is not None
    assert len(set(map(key_of, status.profiles))) == len(status.profiles)
    model = replace(a_model(), status=status)
    found = find_profile(model, measured(facts), accelerator="cpu", batch_size=facts.batch_size)
    assert found is not None
    assert (found.digest, found.backend.value) == (facts.variant or facts.digest, facts.backend)
    assert [p for p in status.profiles if p != found] == sorted((p for p in known if key_of(p) != key_of(found)), key=key_of)


def test_the_oldest_profile_makes_room() -> None:
    many = [a_profile("gpu", batch_size=n, observed_ago=n) for n in range(1, 129)]
    status = learn(a_model(profiles=many))

    assert status is not None and len(status.profiles) == 128
    assert {p.batch_size for p in status.profiles if p.accelerator == "gpu"} == set(range(1, 128))


def test_the_order_is_always_the_same() -> None:
    profiles = [a_profile("gpu"), a_profile("cpu", batch_size=8)]
    here, there = a_model(profiles=profiles), a_model(profiles=profiles[::-1])

    assert learn(here) == learn(there)


def test_a_measurement_says_nothing_about_a_generation() -> None:
    """It may be of a file that an earlier spec named: whoever looks at the spec stamps it."""
    model = a_model()

    assert learn(replace(model, generation=4)) == learn(model)


def test_one_measurement_has_no_spread() -> None:
    profile = learned(a_model(), a_fact(), accelerator="cpu", classes=CLASSES, now=NOW)

    assert profile is not None and profile.profiles[0].spread is None


def test_measurements_that_differ_are_told_as_a_spread() -> None:
    profile = only(learn(a_model(profiles=[a_profile(items_per_second=10.0)]), 20.0))

    assert profile.spread == pytest.approx(0.3 * log(2), rel=1e-3)


def test_one_measurement_that_is_far_off_does_not_make_the_spread_endless() -> None:
    profile = only(learn(a_model(profiles=[a_profile(items_per_second=10.0)]), 1e6))

    assert profile.spread == pytest.approx(0.3 * 2.0)


def test_one_measurement_that_is_far_off_does_not_carry_the_profile_away() -> None:
    known = replace(a_profile(items_per_second=10.0), samples=9)

    assert only(learn(a_model(profiles=[known]), 1000.0)).items_per_second == pytest.approx(13.0)


def test_what_was_learned_long_ago_counts_less() -> None:
    fresh, stale = (a_profile(items_per_second=10.0, observed_ago=days * 86400) for days in (0.1, 70))
    after_fresh, after_stale = (only(learn(a_model(profiles=[known]), 20.0)).items_per_second for known in (fresh, stale))

    assert after_fresh == 13.0
    assert after_stale > 19.9


def test_half_of_what_was_known_is_gone_in_a_week() -> None:
    known = a_profile(items_per_second=10.0, observed_ago=7 * 86400)

    assert only(learn(a_model(profiles=[known]), 20.0)).items_per_second == 15.0
