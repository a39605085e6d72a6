"""What is expected before anything is measured: the author's word, then what the first worker's warm-up finds."""

from inference_operator.decisions.actions import WriteModelStatus
from inference_operator.decisions.profile import Assumptions, estimate
from inference_operator.domain.cluster import Model
from inference_operator.domain.model import DeclaredProfile
from tests.builders import DIGEST, a_fact, a_job, a_model, a_pod, a_profile, a_reading, observed
from tests.unit.decisions.situation import LOOKED
from tests.unit.decisions.support import decide

DECLARED = DeclaredProfile(accelerator="cpu", items_per_second=5.0, load_seconds=1.5)


def expected(model: Model, accelerator: str = "cpu") -> tuple[float, bool]:
    found = estimate(model, DIGEST, accelerator=accelerator, batch_size=1, items=100, serving=False, assumed=Assumptions(3.0, 30.0))
    return found.total_seconds, found.measured


def test_declared_figures_stand_in_for_a_measurement() -> None:
    assert expected(a_model(declared_profiles=[DECLARED])) == (21.5, True)


def test_what_was_measured_takes_their_place() -> None:
    assert expected(a_model(profiles=[a_profile(items_per_second=10.0)], declared_profiles=[DECLARED])) == (12.0, True)


def test_they_hold_for_their_own_class_only() -> None:
    assert expected(a_model(declared_profiles=[DECLARED]), "gpu") == (33.0, False)


def test_plans_reckon_with_declared_figures_being_off() -> None:
    found = estimate(
        a_model(declared_profiles=[DECLARED]),
        DIGEST,
        accelerator="cpu",
        batch_size=1,
        items=100,
        serving=False,
        assumed=Assumptions(3.0, 30.0),
    )

    assert found.cautious_seconds > found.total_seconds


def learned_by(model: Model) -> list[WriteModelStatus]:
    job = a_job(model="m", items=100, status=LOOKED)
    pod = a_pod(job, model=model)
    seen = observed(job, pod, model=model, readings={pod.uid: a_reading(progress=(1, 100), model=a_fact(items_per_second=7.0))})
    return [action for action in decide(seen).actions if isinstance(action, WriteModelStatus)]


def test_the_first_warm_up_on_a_class_is_learned_at_once() -> None:
    (written,) = learned_by(a_model())

    assert [p.items_per_second for p in written.status.profiles] == [7.0]


def test_later_ones_wait_for_the_end_of_the_work() -> None:
    assert not learned_by(a_model(profiles=[a_profile(items_per_second=3.0)]))
