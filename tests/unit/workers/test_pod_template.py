"""Templates of class, model and job: one merge, and what of the result a cluster allows."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from inference_operator.accelerators import AcceleratorClass
from inference_operator.api.conditions import Reason
from inference_operator.api.job import Backend
from inference_operator.api.model import WarmPool
from inference_operator.api.resources import Resources
from inference_operator.api.template import PodTemplate
from inference_operator.settings import Backends, Settings, TritonBackend
from inference_operator.state.objects import Job, Model
from inference_operator.state.parse_pods import parse_pod
from inference_operator.state.resources import PODS
from inference_operator.template_limits import TemplateLimits, is_prefix_allowed, limits_fault
from inference_operator.warmpools.eligibility import pool_of, takes
from inference_operator.workers.pod_template import FIELDS, merged
from inference_operator.workers.resolve import Refusal, ResolvedJob, resolve
from inference_operator.workers.source import remembered
from inference_operator.workers.template_rules import class_faults
from inference_operator.workers.triton import pod_amounts
from tests.builders import SETTINGS, a_job, a_model, a_version, observed
from tests.unit.workers.test_pod import created, pod_of

READ: TypeAdapter[PodTemplate] = TypeAdapter(PodTemplate)
NAMES = st.sampled_from(["a", "b", "c"])
TEXT = st.sampled_from(["x", "y", "z"])
MAPS = st.dictionaries(NAMES, TEXT, max_size=3)


def entries(key: str, make: Callable[[str, str], dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Lists whose entries differ by a key."""
    return st.lists(st.builds(make, NAMES, TEXT), max_size=3, unique_by=lambda one: str(one[key]))


TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "labels": MAPS,
        "annotations": MAPS,
        "env": entries("name", lambda name, text: {"name": name, "value": text}),
        "envFrom": entries("prefix", lambda name, text: {"prefix": name, "configMapRef": {"name": text}}),
        "volumes": entries("name", lambda name, text: {"name": name, "configMap": {"name": text}}),
        "volumeMounts": entries("mountPath", lambda name, text: {"mountPath": f"/mnt/extra/{name}", "name": text}),
        "sidecars": entries("name", lambda name, text: {"name": name, "image": text}),
        "initContainers": entries("name", lambda name, text: {"name": name, "image": text}),
        "hostAliases": entries("ip", lambda name, text: {"ip": f"10.0.0.{ord(name)}", "hostnames": [text]}),
        "imagePullSecrets": st.lists(NAMES, max_size=3, unique=True),
        "serviceAccountName": TEXT,
        "priorityClassName": TEXT,
        "runtimeClassName": TEXT,
        "securityContext": st.fixed_dictionaries({}, optional={"runAsUser": st.integers(1, 3), "fsGroup": st.integers(1, 3)}),
    },
).map(READ.validate_python)


def template(**said: Any) -> PodTemplate:
    return READ.validate_python(said)


def test_the_table_has_every_field() -> None:
    assert set(FIELDS) == {field.name for field in fields(PodTemplate)}


@given(TEMPLATES, TEMPLATES, TEMPLATES)
def test_it_makes_no_difference_which_two_are_merged_first(a: PodTemplate, b: PodTemplate, c: PodTemplate) -> None:
    assert merged(merged(a, b), c) == merged(a, merged(b, c)) == merged(a, b, c)


@given(TEMPLATES)
def test_nothing_and_the_same_again_add_nothing(one: PodTemplate) -> None:
    assert merged(one, None) == merged(None, one) == merged(one, PodTemplate()) == merged(PodTemplate(), one) == one
    assert merged(one, one) == one
    assert merged() is None and merged(None, None) is None


@given(TEMPLATES, TEMPLATES)
def test_all_that_the_later_says_is_in_the_result_and_nothing_that_neither_says(a: PodTemplate, b: PodTemplate) -> None:
    both = merged(a, b)

    assert both is not None
    for name in FIELDS:
        earlier, later, found = (getattr(one, name) for one in (a, b, both))
        match later:
            case dict():
                assert found.items() >= later.items() and found.items() <= {*earlier.items(), *later.items()}
            case list():
                assert all(one in found for one in later) and all(one in (*earlier, *later) for one in found)
                assert all(one in found for one in earlier) or len(found) < len(earlier) + len(later)
            case None:
                assert found == earlier
            case str():
                assert found == later


def test_a_job_goes_before_its_model_and_that_before_the_class() -> None:
    of_class = {"env": [{"name": "APP_A", "value": "class"}, {"name": "APP_B", "value": "class"}], "runtimeClassName": "nvidia"}
    of_model = template(env=[{"name": "APP_B", "value": "model"}, {"name": "APP_C", "value": "model"}])
    settings = with_class(template=of_class)
    job = a_job(model="m", accelerator="cpu", template=template(env=[{"name": "APP_C", "value": "job"}]))

    container = the_pod(job, settings, a_model_with(of_model))["spec"]["containers"][0]

    said = {v["name"]: v["value"] for v in container["env"] if v["name"].startswith("APP_")}
    assert said == {"APP_A": "class", "APP_B": "model", "APP_C": "job"}


def test_a_changed_template_of_a_class_or_a_model_rolls_a_service_out_and_no_batch() -> None:
    other = template(env=[{"name": "APP_A", "value": "x"}])

    def revision(settings: Settings, model: Model, *, serve: bool) -> str:
        found = resolved(a_job(model="m", accelerator="cpu", serve=serve), settings, model)
        return found.revisions.combined

    for serve in (True, False):
        plain = revision(SETTINGS, a_model_with(None), serve=serve)
        assert (revision(SETTINGS, a_model_with(other), serve=serve) != plain) is serve
        changed = with_class(template={"env": [{"name": "APP_A", "value": "x"}]})
        assert (revision(changed, a_model_with(None), serve=serve) != plain) is serve


def test_a_job_whose_model_is_deleted_keeps_what_that_added_to_its_pods() -> None:
    """Else its service would roll out to workers without their account and volumes."""
    model = a_model_with(template(env=[{"name": "APP_A", "value": "x"}]))
    job = a_job(model="m", accelerator="cpu", serve=True)
    found = resolved(job, SETTINGS, model)
    assert found.version is not None
    known = remembered("m", found.version, model)
    begun = replace(job, status=replace(job.status, resolved_model=known))

    assert resolved(begun, SETTINGS, None).revisions == resolved(job, SETTINGS, model).revisions


def test_a_warm_worker_of_a_model_has_its_template_and_takes_batches_that_add_nothing() -> None:
    added = template(env=[{"name": "APP_A", "value": "x"}])
    model = a_model_with(added)
    assert model.spec is not None
    model = replace(model, spec=replace(model.spec, warm_pool=WarmPool(min=1, accelerator="cpu")))
    pool = pool_of(model, SETTINGS)
    assert pool is not None and pool.like.spec.template == added

    plain, special = (a_job(model="m", accelerator="cpu", template=one) for one in (None, template(labels={"a": "b"})))
    settings = allowing_settings(labels=("a",))
    assert takes(pool, resolved(plain, SETTINGS, model))
    assert not takes(pool, resolved(special, settings, model))


class Attack(NamedTuple):
    """What is tried, the words that refuse it, lists under which it is refused, and lists that allow it; None where nothing does."""

    said: dict[str, Any]
    words: str
    allowed_by: dict[str, Any] | None = None
    under: dict[str, Any] = {}  # noqa: RUF012 -- nobody changes it


OF_SECRET = {"secretKeyRef": {"name": "theirs", "key": "k"}}
OF_MAP = {"configMapKeyRef": {"name": "c", "key": "k"}}
THEIRS = "template shows the Secret theirs; this cluster allows none"
ATTACKS = {
    "an env name off the list": Attack({"env": [{"name": "TEAM", "value": "x"}]}, "env sets TEAM", {"environment": ("TEAM",)}),
    "a reserved name from an object": Attack(
        {"env": [{"name": "LD_PRELOAD", "valueFrom": OF_MAP}]}, "env sets LD_PRELOAD", under={"environment": ("LD_PRELOAD", "L*")}
    ),
    "a collector whose host nobody can check": Attack(
        {"env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "valueFrom": OF_MAP}]}, "write its value, so that its host can be checked"
    ),
    "another's Secret as a variable": Attack(
        {"env": [{"name": "APP_KEY", "valueFrom": OF_SECRET}]}, THEIRS, {"secrets": ("theirs",)}
    ),
    "another's Secret as variables": Attack(
        {"envFrom": [{"prefix": "APP_", "secretRef": {"name": "theirs"}}]}, THEIRS, {"secrets": ("the*",)}
    ),
    "another's Secret as files": Attack(
        {"volumes": [{"name": "v", "secret": {"secretName": "theirs", "items": [{"key": "k", "path": "k"}]}}]},
        THEIRS,
        {"secrets": ("theirs",)},
    ),
    "another's Secret in a sidecar": Attack(
        {"sidecars": [{"name": "a", "image": "x", "env": [{"name": "A", "valueFrom": OF_SECRET}]}]},
        THEIRS,
        {"images": ("x",), "secrets": ("theirs",)},
        under={"images": ("x",)},
    ),
    "names that an object's keys complete": Attack(
        {"envFrom": [{"prefix": "L", "configMapRef": {"name": "c"}}]},
        "template.envFrom sets names that begin with L; this cluster allows APP_*",
        under={"environment": ("L*",)},
    ),
    "names beyond the list": Attack(
        {"envFrom": [{"prefix": "TEAM_", "configMapRef": {"name": "c"}}]},
        "template.envFrom sets names that begin with TEAM_",
        {"environment": ("TEAM_*",)},
    ),
    "a sidecar of any image": Attack(
        {"sidecars": [{"name": "a", "image": "evil:1"}]}, "template has a container of evil:1", {"images": ("evil:*",)}
    ),
    "an init container of any image": Attack(
        {"initContainers": [{"name": "a", "image": "evil:1"}]}, "template has a container of evil:1", {"images": ("evil:1",)}
    ),
    "a sidecar with a device": Attack(
        {"sidecars": [{"name": "a", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        "container a asks for nvidia.com/gpu",
        under={"images": ("x",)},
    ),
    "a sidecar in the worker's own volumes": Attack(
        {"sidecars": [{"name": "a", "image": "x", "volumeMounts": [{"name": "identity", "mountPath": "/i"}]}]},
        "volumeMounts names the volume identity; there is none",
        under={"images": ("x",)},
    ),
    "an account of somebody else": Attack(
        {"serviceAccountName": "admin"}, "serviceAccountName is admin", {"service_accounts": ("admin",)}
    ),
    "another user's files": Attack({"securityContext": {"runAsUser": 1000}}, "has the id 1000", {"ids": ("500-1500",)}),
    "another group's files": Attack({"securityContext": {"supplementalGroups": [7]}}, "has the id 7", {"ids": (7,)}),
    "a known host elsewhere": Attack(
        {"hostAliases": [{"ip": "203.0.113.1", "hostnames": ["store"]}]}, "hostAliases names store", {"host_aliases": ("store",)}
    ),
    "two containers of one name": Attack(
        {"sidecars": [{"name": "a", "image": "x"}], "initContainers": [{"name": "a", "image": "x"}]},
        "has two containers a",
        under={"images": ("x",)},
    ),
    "a mount of no volume": Attack(
        {"volumeMounts": [{"name": "v", "mountPath": "/mnt/extra/v"}]}, "names the volume v; there is none: add it to volumes"
    ),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("place", ["job", "model"])
def test_what_a_cluster_does_not_allow_is_refused_and_told(attack: Attack, place: str) -> None:
    said = template(**attack.said)
    job = a_job(model="m", accelerator="cpu", template=said if place == "job" else None)
    model = a_model_with(said if place == "model" else None)

    found = looked_at(job, allowing_settings(**attack.under), model)
    assert isinstance(found, Refusal)
    assert (found.reason, found.final) == (Reason.TEMPLATE_FORBIDDEN, False) and attack.words in found.message
    if attack.allowed_by is not None:
        assert isinstance(looked_at(job, allowing_settings(**attack.allowed_by), model), ResolvedJob)


UNREADABLE = {
    "a path of the node": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
    "a token": {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
    "a claim": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    "a privileged sidecar": {"sidecars": [{"name": "a", "image": "x", "securityContext": {"privileged": True}}]},
    "a hook": {"sidecars": [{"name": "a", "image": "x", "lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}]},
    "a process that isn't confined": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    "the node's network": {"hostNetwork": True},
}


@pytest.mark.parametrize("said", UNREADABLE.values(), ids=UNREADABLE)
def test_what_there_is_no_field_for_reaches_no_pod(said: dict[str, Any]) -> None:
    """The API server prunes it, or refuses what is left; here is an object that came another way."""
    settings = allowing_settings(images=("x",))

    pod = the_pod(a_job(accelerator="cpu", template=template(**said)), settings, None)

    assert all(word not in str(pod) for word in ("hostPath", "'path': 't'", "'claimName'", "privileged", "preStop", "Unconfined"))
    assert "hostNetwork" not in pod["spec"]


@pytest.mark.parametrize(
    "prefix", ["L", "LD_", "P", "PY", "I", "INFERENCE_", "C", "CUDA_X", "PATH", "E", "B", "T", "TRI", "O", "G"]
)
def test_no_setting_allows_a_prefix_that_a_key_could_complete_to_a_reserved_name(prefix: str) -> None:
    assert not is_prefix_allowed(prefix, TemplateLimits(environment=(f"{prefix}*", "*")))


@pytest.mark.parametrize("entry", ["0", "0-10", "20-10", "a", "-5", "1000-"])
def test_ids_that_are_none_end_the_operator_at_its_start(entry: str) -> None:
    assert "podTemplate.ids" in str(limits_fault(TemplateLimits(ids=(entry,))))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"env": [{"name": "LD_PRELOAD", "value": "x"}]}, "which the loader, Python or a runtime obeys"),
        ({"env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "x"}]}, "set tracing.endpoint instead"),
        ({"envFrom": [{"prefix": "P", "configMapRef": {"name": "c"}}]}, "with which reserved names begin"),
        ({"labels": {"inference.myorg/job": "x"}}, "is reserved"),
        ({"sidecar": []}, "there is no field 'sidecar'"),
        ({"volumes": [{"name": "UPPER"}]}, "accelerators.cpu.template.volumes.0.name"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/mnt/extra/v"}]}, "names the volume v"),
    ],
)
def test_a_class_whose_template_no_pod_can_have_ends_the_operator_at_its_start(said: dict[str, Any], words: str) -> None:
    assert words in next(class_faults(with_class(template=said).accelerators))


def test_what_an_administrator_gives_a_class_needs_no_list() -> None:
    settings = with_class(
        template={
            "env": [{"name": "TEAM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "sidecars": [{"name": "a", "image": "agent:1"}],
            "priorityClassName": "high",
        }
    )

    assert list(class_faults(settings.accelerators)) == []
    assert isinstance(resolved(a_job(accelerator="cpu"), settings, None), ResolvedJob)


FULL = {
    "env": [{"name": "APP_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "envFrom": [{"prefix": "APP_", "configMapRef": {"name": "more"}}],
    "volumes": [{"name": "work", "emptyDir": {"sizeLimit": "10Mi"}}, {"name": "rules", "configMap": {"name": "rules"}}],
    "volumeMounts": [{"name": "work", "mountPath": "/mnt/extra/work"}],
    "initContainers": [{"name": "first", "image": "x", "resources": {"requests": {"cpu": "4", "memory": "64Mi"}}}],
    "sidecars": [
        {
            "name": "proxy",
            "image": "x",
            "command": ["/proxy"],
            "resources": {"requests": {"cpu": "100m"}},
            "volumeMounts": [{"name": "work", "mountPath": "/work"}],
        }
    ],
    "serviceAccountName": "robot",
    "securityContext": {"runAsUser": 1000},
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["store"]}],
}
GENEROUS = {"images": ("x",), "service_accounts": ("robot",), "ids": (1000,), "host_aliases": ("store",)}


def test_the_pod_has_what_the_template_says_under_names_of_its_own() -> None:
    pod = the_pod(a_job(accelerator="cpu", template=template(**FULL)), allowing_settings(**GENEROUS), None)["spec"]
    worker, (proxy, first) = pod["containers"][0], pod["initContainers"]

    assert {v["name"] for v in pod["volumes"]} >= {"extra-work", "extra-rules"}
    assert {"name": "extra-work", "mountPath": "/mnt/extra/work", "readOnly": False} in worker["volumeMounts"]
    assert worker["envFrom"] == [{"prefix": "APP_", "configMapRef": {"name": "more", "optional": False}}]
    assert (proxy["name"], proxy["restartPolicy"], proxy["command"]) == ("extra-proxy", "Always", ["/proxy"])
    assert first["name"] == "extra-first" and "restartPolicy" not in first
    assert proxy["securityContext"] == first["securityContext"] == worker["securityContext"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("robot", False)
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (1000, 65532)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["hostAliases"] == [{"ip": "10.0.0.1", "hostnames": ["store"]}]


def test_containers_beside_the_worker_count_where_a_node_is_chosen() -> None:
    """As the API server counts them: sidecars on top, and the greediest moment before the worker starts."""
    resources = Resources(requests={"cpu": "1", "memory": "1Gi"})

    alone = pod_amounts(resources, PodTemplate(), with_sidecar=False)
    full = pod_amounts(resources, template(**FULL), with_sidecar=False)
    (option,) = resolved(a_job(accelerator="cpu", template=template(**FULL)), allowing_settings(**GENEROUS), None).options

    assert (alone["cpu"], full["cpu"], full["memory"]) == (1000, 4100, 1 << 30)
    assert dict(option.requirements.amounts)["cpu"] == 4100


@pytest.mark.parametrize("backend", [Backend.ONNX, Backend.TRITON])
def test_what_a_new_pod_takes_is_what_is_read_of_it_later(backend: Backend) -> None:
    settings = msgspec.structs.replace(allowing_settings(**GENEROUS), backends=Backends(triton=TritonBackend(image="triton")))
    made = created(a_job(accelerator="cpu", backend=backend, template=template(**FULL)), settings=settings)

    read = parse_pod({**made.manifest, "metadata": {**made.manifest["metadata"], "uid": "1", "resourceVersion": "1"}, "status": {}})

    assert read.requests == {**made.assumed.requests, PODS: 1}


def with_class(**said: Any) -> Settings:
    cpu: AcceleratorClass = msgspec.structs.replace(SETTINGS.accelerators["cpu"], **said)
    return msgspec.structs.replace(SETTINGS, accelerators={**SETTINGS.accelerators, "cpu": cpu})


def allowing_settings(**lists: Any) -> Settings:
    return msgspec.structs.replace(SETTINGS, pod_template=TemplateLimits(**lists))


def a_model_with(given: PodTemplate | None) -> Model:
    model = a_model("m", a_version("1"))
    assert model.spec is not None
    return replace(model, spec=replace(model.spec, template=given))


def looked_at(job: Job, settings: Settings, model: Model | None) -> ResolvedJob | Refusal:
    assert job.spec is not None
    return resolve(observed(job, model=model), job.spec, settings)


def resolved(job: Job, settings: Settings, model: Model | None) -> ResolvedJob:
    found = looked_at(job, settings, model)
    assert isinstance(found, ResolvedJob), found
    return found


def the_pod(job: Job, settings: Settings, model: Model | None) -> dict[str, Any]:
    return pod_of(job, model, settings=settings)
