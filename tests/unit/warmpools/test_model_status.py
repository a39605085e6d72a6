"""What a model's status says of the model: whether its spec can be used, which jobs use it, and how rarely that is written."""

from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.model import AcceleratorResources, DeclaredProfile, InferenceModelStatus, WarmPoolStatus
from inference_operator.api.resources import Resources
from inference_operator.settings import Backends, Fetching, Settings, TorchScriptBackend
from inference_operator.state.objects import Model
from inference_operator.state.parse import model_status_document
from inference_operator.warmpools.model_status import COUNT_SECONDS, is_count_due, model_status, with_model_status
from inference_operator.workers.actions import Plan, WriteModelStatus
from tests.builders import NOW, SETTINGS, a_model, a_profile, a_version, whole
from tests.kstatus import kstatus
from tests.unit.scheduling.support import facts

TORCH = msgspec.structs.replace(SETTINGS, backends=Backends(torchscript=TorchScriptBackend(image="torch")))
GOOD, BAD_URI = a_version("1"), a_version("2", uri="pvc://data/../m.onnx")
TORCHSCRIPT = a_version("3", file_format="torchscript")


def told(
    model: Model, users: AbstractSet[str] | None = frozenset(), *, settings: Settings = SETTINGS, now: datetime = NOW
) -> InferenceModelStatus:
    return model_status(model, users, settings, now)


def conditions(status: InferenceModelStatus) -> dict[str, tuple[str, str]]:
    return facts(status.conditions)


def message(status: InferenceModelStatus, kind: str) -> str:
    return next(one.message for one in status.conditions if one.type == kind)


def verdict(model: Model, status: InferenceModelStatus) -> str:
    return kstatus({"metadata": {"generation": model.generation}, "status": model_status_document(status)})


# Whether its spec can be used.


def test_a_model_without_any_job_has_a_status() -> None:
    model = replace(a_model("m", a_version("1"), a_version("1-int8")), generation=4)
    status = told(model)

    assert conditions(status) == {"Ready": ("True", "Usable"), "InUse": ("False", "NotUsed")}
    assert (status.observed_generation, status.versions, status.default_version) == (4, "1,1-int8", "1-int8")
    assert {one.observed_generation for one in status.conditions} == {4}
    assert verdict(model, status) == "Current"


@pytest.mark.parametrize(
    ("model", "reason", "words"),
    [
        (a_model("m", invalid="versions.0.digest: String should match pattern"), "InvalidSpec", "versions.0.digest"),
        (a_model("m", GOOD, default_version="9"), "ModelVersionUnknown", "the versions are 1"),
        (a_model("m", GOOD, BAD_URI), "InvalidSpec", "version '2', the default, can't be used"),
        (a_model("m", TORCHSCRIPT), "BackendUnavailable", "backends.torchscript.image"),
    ],
    ids=["malformed digest", "unknown default", "forbidden path", "no back end"],
)
def test_a_spec_that_can_not_be_used_says_why_and_is_failed_to_kstatus(model: Model, reason: str, words: str) -> None:
    status = told(model)

    assert conditions(status) == {"Ready": ("False", reason), "Stalled": ("True", reason), "InUse": ("False", "NotUsed")}
    assert words in message(status, "Ready")
    assert verdict(model, status) == "Failed"


def test_a_version_on_a_host_that_is_not_allowed_says_so() -> None:
    listing = msgspec.structs.replace(SETTINGS, fetch=Fetching(("models.example",)))
    status = told(a_model("m", a_version(uri="https://other.example/m.onnx")), settings=listing)

    assert conditions(status)["Ready"] == ("False", "HostForbidden")
    assert "this cluster allows models.example" in message(status, "Ready")


def test_a_version_that_is_not_the_default_spoils_no_other() -> None:
    status = told(a_model("m", GOOD, BAD_URI, TORCHSCRIPT, default_version="1"))

    assert conditions(status)["Ready"] == ("True", "Usable")
    assert "version '2' can't be used" in message(status, "Ready") and "version '3' can't be used" in message(status, "Ready")


def test_what_the_operator_has_a_back_end_for_can_be_used() -> None:
    assert conditions(told(a_model("m", TORCHSCRIPT), settings=TORCH))["Ready"] == ("True", "Usable")


def test_an_edit_that_cures_a_spec_is_told_with_its_generation() -> None:
    broken = a_model("m", GOOD, default_version="9")
    cured = replace(a_model("m", GOOD), generation=2, status=told(broken))
    status = told(cured)

    assert conditions(status)["Ready"] == ("True", "Usable") and "Stalled" not in conditions(status)
    assert status.observed_generation == 2


# Which jobs use it.


def test_the_jobs_that_use_it_are_counted_and_the_first_ten_named() -> None:
    status = told(a_model(), {f"job-{number:02}" for number in range(12)})

    assert conditions(status)["InUse"] == ("True", "UsedByJobs")
    assert status.usage is not None
    assert (status.usage.jobs, status.usage.names) == (12, [f"job-{number:02}" for number in range(10)])
    assert message(status, "InUse").startswith("12 jobs use it: job-00, ") and message(status, "InUse").endswith(" and 2 more")


def test_one_job_is_one_job() -> None:
    assert message(told(a_model(), {"only"}), "InUse") == "1 job uses it: only"


def counted(users: AbstractSet[str], *, ago: float) -> Model:
    model = a_model()
    return replace(model, status=told(model, users, now=whole(NOW) - timedelta(seconds=ago)))


@pytest.mark.parametrize(
    ("users", "ago", "due"),
    [(set(), 0.0, True), ({"a"}, 0.0, False), ({"a"}, COUNT_SECONDS - 1, False), ({"a"}, COUNT_SECONDS, True)],
)
def test_the_first_job_is_told_at_once_and_all_others_now_and_then(users: AbstractSet[str], ago: float, *, due: bool) -> None:
    assert is_count_due(counted(users, ago=ago), None, NOW) == due


def test_a_count_that_was_the_same_is_not_repeated_at_every_look() -> None:
    model = counted({"a"}, ago=600)

    assert is_count_due(model, None, NOW)
    assert not is_count_due(model, NOW - timedelta(seconds=1), NOW)
    assert is_count_due(model, NOW - timedelta(seconds=COUNT_SECONDS), NOW)


def test_while_a_count_stands_it_stands() -> None:
    model = counted({"a", "b"}, ago=5)

    assert told(model, None) == model.status


names = st.sets(st.text("abc", min_size=1, max_size=3), max_size=15)


@given(names, names)
def test_what_is_the_same_is_not_written_again(first: set[str], second: set[str]) -> None:
    model = replace(a_model(), status=told(a_model(), first))
    later = NOW + timedelta(hours=1)
    again = told(model, second, now=later)

    assert (again == model.status) == (first == second or (len(first), sorted(first)[:10]) == (len(second), sorted(second)[:10]))
    assert told(replace(model, status=again), second, now=later + timedelta(hours=1)) == again


# Beside what its pool says.


def writes(plan: Plan) -> list[InferenceModelStatus]:
    return [action.status for action in plan.actions if isinstance(action, WriteModelStatus)]


def test_pool_and_model_are_told_in_one_write() -> None:
    model = a_model(profiles=[a_profile()])
    pool = replace(model.status, warm_pool=WarmPoolStatus(workers=2))
    plan = with_model_status(Plan((WriteModelStatus(model.key, model.uid, pool, "1"),)), model, {"a"}, SETTINGS, NOW)
    (status,) = writes(plan)

    assert status.warm_pool == WarmPoolStatus(workers=2)
    assert status.profiles == model.status.profiles
    assert conditions(status)["InUse"] == ("True", "UsedByJobs")


def test_a_model_that_is_used_is_looked_at_again_and_one_that_is_not_is_left() -> None:
    used, unused = counted({"a"}, ago=10), counted(set(), ago=10)

    assert with_model_status(Plan(), used, None, SETTINGS, NOW) == Plan((), whole(NOW) + timedelta(seconds=COUNT_SECONDS - 10))
    assert with_model_status(Plan(), used, {"a"}, SETTINGS, NOW) == Plan((), NOW + timedelta(seconds=COUNT_SECONDS))
    assert with_model_status(Plan(), unused, set(), SETTINGS, NOW) == Plan()


def test_a_status_that_can_not_be_read_is_not_overwritten() -> None:
    model = replace(a_model(), unreadable="profiles.0.backend: unknown")

    assert with_model_status(Plan(), model, {"a"}, SETTINGS, NOW) == Plan()


def test_a_class_that_only_the_model_knows_is_told() -> None:
    """A profile for h100 on a cluster without that class had been `Usable`, without a word."""
    model = a_model()
    assert model.spec is not None
    spec = replace(
        model.spec,
        declared_profiles=[
            DeclaredProfile(accelerator="cpu", items_per_second=1.0),
            DeclaredProfile(accelerator="h100", items_per_second=9.0),
        ],
        resources=[AcceleratorResources(accelerator="l40", resources=Resources())],
    )
    found = message(told(replace(model, spec=spec)), "Ready")

    assert found.endswith("what it says of accelerator h100, l40 is not used: the operator has no such class")
