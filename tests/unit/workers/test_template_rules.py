"""What a job adds to its pods: the attacks that were possible, and what an administrator may allow."""

import re
from pathlib import Path

import msgspec
import pytest

from inference_operator.api.conditions import Reason
from inference_operator.api.crd import inference_job_crd
from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.pod_parts import EnvironmentVariable
from inference_operator.api.template import PodTemplate, Toleration
from inference_operator.settings import ConfigurationError, Settings, load_settings
from inference_operator.template_limits import RESERVED_ENVIRONMENT, USUAL_ENVIRONMENT, TemplateLimits
from inference_operator.workers.environment import environment
from inference_operator.workers.resolve import Refusal, resolve
from inference_operator.workers.template_rules import template_fault
from inference_protocol.messages import CONFIG_VARIABLE, ModelSource, WorkerConfig
from tests.builders import a_job, observed

STRICT = Settings()
# Names that load or run code, or change what is computed, before the worker has read its configuration.
DANGEROUS = (
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "MALLOC_CONF"),
    *("PYTHONWARNINGS", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONBREAKPOINT", "BROWSER", "PATH", "HOME", "BASH_ENV"),
    *("INFERENCE_CACHE_DIRECTORY", "INFERENCE_VOLUME_ROOT", "INFERENCE_TERMINATION_PATH", CONFIG_VARIABLE),
    *(
        "CUDA_INJECTION64_PATH",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "OMP_TOOL_LIBRARIES",
        "ORT_LOAD_CONFIG_FROM_MODEL",
    ),
    *("OPENSSL_CONF", "TORCH_EXTENSIONS_DIR"),
)


def told(spec: InferenceJobSpec | None, settings: Settings = STRICT) -> str | None:
    assert spec is not None
    return template_fault(spec, settings)


def sets(*names: str) -> PodTemplate:
    return PodTemplate(env=[EnvironmentVariable(name=name, value="x") for name in names])


def allowing(**lists: tuple[str, ...]) -> Settings:
    return Settings(pod_template=TemplateLimits(**lists))


@pytest.mark.parametrize("name", DANGEROUS)
def test_code_does_not_come_before_verification_by_the_environment(name: str) -> None:
    """`PYTHONWARNINGS` with `BROWSER` ran a command in the worker before its configuration was read."""
    job = a_job(template=sets(name))
    generous = allowing(environment=(name, f"{name[0]}*"))

    assert job.spec is not None
    found = resolve(observed(job), job.spec, STRICT)
    assert isinstance(found, Refusal) and (found.reason, found.final) == (Reason.TEMPLATE_FORBIDDEN, False)
    assert f"template.env sets {name}; this cluster allows TZ" in found.message
    assert told(job.spec, generous) is not None, "no setting allows it"


@pytest.mark.parametrize("name", [*DANGEROUS, "UNHEARD_OF"])
def test_the_pod_builder_leaves_out_what_a_check_has_missed(name: str) -> None:
    source = ModelSource(name="m", version="1", uri="pvc://d/m")
    config = WorkerConfig(namespace="n", job="j", uid="u", attempt=1, model=source, providers=())

    made = environment(a_job(), config, sets("TZ", name), STRICT)

    assert [variable["name"] for variable in made] == ["TZ", CONFIG_VARIABLE]
    assert made[-1]["value"].startswith("{"), "the configuration is the operator's"


def test_the_api_server_refuses_the_reserved_names_by_the_same_pattern() -> None:
    (version,) = inference_job_crd()["spec"]["versions"]
    template = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["template"]
    (rule,) = template["properties"]["env"]["items"]["properties"]["name"]["x-kubernetes-validations"]

    assert rule["rule"] == f"!self.matches('{RESERVED_ENVIRONMENT}')"
    assert all(re.match(RESERVED_ENVIRONMENT, name) for name in DANGEROUS)
    assert not any(re.match(RESERVED_ENVIRONMENT, name) for name in USUAL_ENVIRONMENT)


def test_usual_names_are_every_jobs_and_an_administrator_adds_others() -> None:
    usual = tuple(name.replace("*", "COLOUR") for name in USUAL_ENVIRONMENT)

    assert told(a_job(template=sets(*usual)).spec) is None
    more = a_job(template=sets("HTTPS_PROXY", "TEAM_A")).spec
    assert told(more) is not None
    assert told(more, allowing(environment=("HTTPS_PROXY", "TEAM_*"))) is None


FORBIDDEN = {
    "an AppArmor profile": PodTemplate(annotations={"container.apparmor.security.beta.kubernetes.io/worker": "unconfined"}),
    "a seccomp profile": PodTemplate(annotations={"container.seccomp.security.alpha.kubernetes.io/worker": "unconfined"}),
    "a placement": PodTemplate(annotations={"inference.myorg/placement": "{}"}),
    "another job's worker": PodTemplate(labels={"inference.myorg/job-uid": "theirs"}),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_setting_lets_a_template_undo_what_confines_a_worker(what: str) -> None:
    everything = tuple(f"{first}*" for first in "abcdefghijklmnopqrstuvwxyz")

    assert told(a_job(template=FORBIDDEN[what]).spec, allowing(annotations=everything, labels=everything)) is not None


ESCAPES = {
    "labels": (PodTemplate(labels={"app": "payments"}), {"labels": ("app",)}, "template.labels sets app"),
    "annotations": (
        PodTemplate(annotations={"sidecar.istio.io/inject": "false"}),
        {"annotations": ("sidecar.istio.io/*",)},
        "template.annotations sets sidecar.istio.io/inject",
    ),
    "priority class": (PodTemplate(priority_class_name="vip"), {"priority_classes": ("vip",)}, "priorityClassName is vip"),
    "runtime class": (PodTemplate(runtime_class_name="bare"), {"runtime_classes": ("bare",)}, "runtimeClassName is bare"),
}


@pytest.mark.parametrize("what", ESCAPES)
def test_a_template_keeps_to_what_the_administrator_allows(what: str) -> None:
    """A label joined the pod to another Service; a priority class preempted others' pods."""
    template, lists, words = ESCAPES[what]
    spec = a_job(template=template).spec

    assert words in (told(spec) or "")
    assert told(spec, allowing(**lists)) is None


@pytest.mark.parametrize("toleration", [Toleration(operator="Exists"), Toleration(key="", operator="Exists")])
def test_a_toleration_for_everything_is_refused(toleration: Toleration) -> None:
    """It put workers on control planes, and on nodes that were drained."""
    assert "tolerates every taint" in (told(a_job(tolerations=[toleration]).spec, allowing(tolerations=("spot",))) or "")


def test_a_job_tolerates_what_the_classes_do_and_what_the_administrator_allows() -> None:
    def one(key: str) -> InferenceJobSpec | None:
        return a_job(tolerations=[Toleration(key=key, operator="Exists")]).spec

    assert told(one("nvidia.com/gpu")) is None
    refused = told(one("node-role.kubernetes.io/control-plane"))
    assert refused is not None and "this cluster allows nvidia.com/gpu" in refused and "podTemplate.tolerations" in refused
    assert told(one("spot"), allowing(tolerations=("spot",))) is None


def test_a_warm_pools_workers_and_a_plain_job_are_not_touched() -> None:
    assert told(a_job().spec) is None


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"environment": ["LD_PRELOAD"]}, "LD_PRELOAD is reserved"),
        ({"environment": ["PYTHON*"]}, "PYTHON* is reserved"),
        ({"environment": ["*"]}, "neither a name nor a prefix"),
        ({"labels": ["*"]}, "neither a name nor a prefix"),
        ({"annotations": ["container.apparmor.security.beta.kubernetes.io/*"]}, "is reserved"),
        ({"annotations": ["inference.myorg/*"]}, "is reserved"),
        ({"tolerations": ["*"]}, "none stands for all"),
        ({"tolerations": [""]}, "none stands for all"),
    ],
)
def test_a_setting_that_would_open_everything_ends_the_operator_at_its_start(
    tmp_path: Path, limits: dict[str, list[str]], words: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(msgspec.yaml.encode({"podTemplate": limits}))

    with pytest.raises(ConfigurationError, match=re.escape(words)):
        load_settings(file)
