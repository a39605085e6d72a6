"""What is expected before anything is measured: the author's word, then what the first worker's warm-up finds."""

import pytest

from inference_operator.api.job import Backend
from inference_operator.api.model import DeclaredProfile
from inference_operator.scheduling.estimate import Assumptions, Estimate, estimate, find_profile
from inference_operator.state.objects import Model
from inference_operator.workers.actions import WriteModelStatus
from tests.builders import (
    DIGEST,
    OTHER_DIGEST,
    a_fact,
    a_job,
    a_model,
    a_pod,
    a_profile,
    a_reading,
    a_subject,
    observed,
    resolved_of,
)
from tests.unit.jobs.situation import LOOKED
from tests.unit.scheduling.support import decide
from tests.unit.warmpools.pool_support import WITH_TRITON

DECLARED = DeclaredProfile(accelerator="cpu", items_per_second=5.0, load_seconds=1.5)


def expected(model: Model, accelerator: str = "cpu", backend: Backend = Backend.ONNX) -> tuple[float, bool]:
    found = estimate_of(model, accelerator, backend)
    return found.total_seconds, found.measured


def estimate_of(model: Model, accelerator: str = "cpu", backend: Backend = Backend.ONNX, *, items: int | None = 100) -> Estimate:
    return estimate(
        model,
        a_subject(backend=backend),
        accelerator=accelerator,
        batch_size=1,
        items=items,
        serving=False,
        assumed=Assumptions(3.0, 30.0),
    )


def test_declared_figures_stand_in_for_a_measurement() -> None:
    assert expected(a_model(declared_profiles=[DECLARED])) == (21.5, True)


def test_what_was_measured_takes_their_place() -> None:
    assert expected(a_model(profiles=[a_profile(items_per_second=10.0)], declared_profiles=[DECLARED])) == (12.0, True)


def test_they_hold_for_their_own_class_only() -> None:
    assert expected(a_model(declared_profiles=[DECLARED]), "gpu") == (33.0, False)


def test_what_is_said_of_one_back_end_goes_before_what_is_said_of_any() -> None:
    of_triton = DeclaredProfile(accelerator="cpu", backend=Backend.TRITON, items_per_second=2.0, load_seconds=6.0)
    model = a_model(declared_profiles=[DECLARED, of_triton])

    assert expected(model, backend=Backend.TRITON) == (56.0, True)
    assert expected(model, backend=Backend.ONNX) == (21.5, True)
    assert expected(a_model(declared_profiles=[of_triton]), backend=Backend.ONNX) == (33.0, False)


def test_what_one_back_end_was_measured_at_says_nothing_of_another() -> None:
    model = a_model(profiles=[a_profile(items_per_second=10.0), a_profile(items_per_second=4.0, backend=Backend.TRITON)])

    assert [expected(model, backend=b)[0] for b in (Backend.ONNX, Backend.TRITON)] == [12.0, 27.0]
    assert expected(model, backend=Backend.TORCHSCRIPT) == (33.0, False)


def test_an_int8_variant_and_its_original_are_told_apart() -> None:
    of_variant = a_profile(items_per_second=20.0, digest=OTHER_DIGEST, variant_of=DIGEST)
    model = a_model(profiles=[a_profile(items_per_second=10.0), of_variant])

    assert find_profile(model, a_subject(), accelerator="cpu", batch_size=1) == model.status.profiles[0]
    for pinned in (DIGEST, None):
        assert find_profile(model, a_subject(pinned, variant=True), accelerator="cpu", batch_size=1) == of_variant
    # A file that is that very variant, and of which nothing was measured as such.
    assert find_profile(model, a_subject(OTHER_DIGEST), accelerator="cpu", batch_size=1) is None


def test_of_two_variants_of_a_file_the_one_measured_last_counts() -> None:
    variants = [
        a_profile(digest="sha256:" + c * 64, variant_of=DIGEST, observed_ago=ago) for c, ago in (("c", 9), ("d", 5), ("e", 7))
    ]
    found = find_profile(a_model(profiles=variants), a_subject(variant=True), accelerator="cpu", batch_size=1)

    assert found == variants[1]


@pytest.mark.parametrize(("backend", "rate"), [(Backend.ONNX, 10.0), (Backend.AUTO, 10.0), (Backend.TRITON, 4.0)])
def test_a_need_is_reckoned_with_the_back_end_that_it_will_have(backend: Backend, rate: float) -> None:
    model = a_model(profiles=[a_profile(items_per_second=10.0), a_profile(items_per_second=4.0, backend=Backend.TRITON)])
    seen = observed(a_job(model="m", items=100, accelerator="cpu", backend=backend), model=model)
    (option,) = resolved_of(seen, WITH_TRITON).options

    assert option.estimate.work_seconds == 100 / rate


@pytest.mark.parametrize(("items", "rate"), [(None, 10.0), (100, 0.0)], ids=["how many items", "how fast they are"])
def test_where_one_figure_is_missing_the_work_is_assumed_and_only_the_load_is_known(items: int | None, rate: float) -> None:
    found = estimate_of(a_model(profiles=[a_profile(items_per_second=rate)]), items=items)

    assert found == Estimate(2.0, 30.0, measured=False, items_per_second=rate or None)


@pytest.mark.parametrize(("seconds", "warm", "items"), [(12, "cold", 100), (12, "warm", 120), (1, "cold", 0)])
def test_how_many_items_a_deadline_allows_follows_from_the_pace_that_was_measured(seconds: float, warm: str, items: int) -> None:
    found = estimate_of(a_model(profiles=[a_profile(items_per_second=10.0)]), items=None)

    assert found.items_within(seconds, warm=warm == "warm") == items


def test_where_no_pace_is_known_a_deadline_allows_any_number_of_items() -> None:
    assert estimate_of(a_model(), items=None).items_within(1, warm=False) is None


def test_plans_reckon_with_declared_figures_being_off() -> None:
    found = estimate_of(a_model(declared_profiles=[DECLARED]))

    assert found.cautious_seconds > found.total_seconds


def learned_by(model: Model) -> list[WriteModelStatus]:
    job = a_job(model="m", items=100, status=LOOKED)
    pod = a_pod(job, model=model)
    seen = observed(job, pod, model=model, readings={pod.uid: a_reading(progress=(1, 100), model=a_fact(items_per_second=7.0))})
    return [action for action in decide(seen).actions if isinstance(action, WriteModelStatus)]


def test_the_first_warm_up_on_a_class_is_learned_at_once() -> None:
    (written,) = learned_by(a_model())

    assert [p.items_per_second for p in written.status.profiles] == [7.0]


def test_so_is_that_of_another_back_end_and_of_a_variant() -> None:
    model = a_model(
        profiles=[a_profile(items_per_second=3.0, backend=Backend.TRITON), a_profile(digest=OTHER_DIGEST, variant_of=DIGEST)]
    )
    (written,) = learned_by(model)

    assert [(p.backend, p.variant_of is None) for p in written.status.profiles if p.items_per_second == 7.0] == [
        (Backend.ONNX, True)
    ]


def test_later_ones_wait_for_the_end_of_the_work() -> None:
    assert not learned_by(a_model(profiles=[a_profile(items_per_second=3.0)]))
