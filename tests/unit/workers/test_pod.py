"""The worker pod: restricted in every field, placed by affinity, owned by its job, and told what to do."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api import names
from inference_operator.api.gateway import ServeGateway
from inference_operator.api.job import Input, ModelControl, Output, Serve, SharedMemory
from inference_operator.api.model import ModelVersion, QuantizationMethod, QuantizationSpec
from inference_operator.api.pod_parts import EnvironmentVariable
from inference_operator.api.resources import Resources
from inference_operator.api.template import PodTemplate, Toleration
from inference_operator.scheduling.types import Decision
from inference_operator.settings import Settings, Tracing, WorkerSecurity
from inference_operator.state.objects import Job, Model
from inference_operator.state.parse_pods import parse_pod
from inference_operator.workers.actions import CreatePod
from inference_operator.workers.pod import worker_pod
from inference_operator.workers.template_hash import template_placement
from inference_protocol.messages import CONFIG_VARIABLE, ModelSource, Quantization, WorkerConfig
from inference_worker.serve.health import _HELD_SECONDS
from tests.builders import DIGEST, GPU, SETTINGS, a_job, a_model, a_version, observed, placed_on
from tests.unit.scheduling.support import decide, wanted

Manifest = dict[str, Any]


def created(job: Job, model: Model | None = None, *, accelerator: str = "cpu", settings: Settings = SETTINGS) -> CreatePod:
    seen = observed(job, model=model)
    need = wanted(seen, settings=settings)
    assert need is not None
    answer: Decision = placed_on(need, "node-1", accelerator=accelerator)
    (action,) = [a for a in decide(seen, lambda _: answer, settings=settings).actions if isinstance(a, CreatePod)]
    return action


def pod_of(job: Job, model: Model | None = None, *, accelerator: str = "cpu", settings: Settings = SETTINGS) -> Manifest:
    return created(job, model, accelerator=accelerator, settings=settings).manifest


def container_of(pod: Manifest) -> Manifest:
    (container,) = pod["spec"]["containers"]
    found: Manifest = container
    return found


def config_of(pod: Manifest) -> WorkerConfig:
    (text,) = [entry["value"] for entry in container_of(pod)["env"] if entry["name"] == CONFIG_VARIABLE]
    return msgspec.json.decode(text, type=WorkerConfig)


JOBS = {
    "a batch in place": a_job(),
    "a batch over volumes": a_job(model="pvc://models/m.onnx", items=5),
    "a batch over one volume": a_job(model="pvc://data/m.onnx", items=5),
    "a batch from the web": a_job(
        model="https://h/m.onnx",
        model_digest=DIGEST,
        input=Input(uri="https://h/i.npy", digest=DIGEST),
        output=Output(uri="pvc://o/x"),
    ),
    "a serving job": a_job(serve=True),
    "a job with a template": a_job(
        template=PodTemplate(
            labels={"team": "a"},
            annotations={"note": "b"},
            env=[EnvironmentVariable(name="APP_X", value="1")],
            priority_class_name="high",
            runtime_class_name="nvidia",
            image_pull_secrets=["secret"],
        )
    ),
}
every_job = pytest.mark.parametrize("name", JOBS)

# Pod Security Standards, level restricted, word for word (kubernetes.io/docs/concepts/security/pod-security-standards).

ALLOWED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def violations(pod: Manifest) -> list[str]:
    spec, found = pod["spec"], []
    host = [name for name in ("hostNetwork", "hostPID", "hostIPC", "hostUsers") if spec.get(name)]
    found += [f"{name} is set" for name in host]
    found += [f"volume {v['name']}" for v in spec.get("volumes", []) if not (set(v) - {"name"}) <= ALLOWED_VOLUMES]
    whole = spec.get("securityContext", {})
    for container in [*spec["containers"], *spec.get("initContainers", []), *spec.get("ephemeralContainers", [])]:
        own = container.get("securityContext", {})
        if own.get("privileged"):
            found.append("privileged")
        if own.get("allowPrivilegeEscalation") is not False:
            found.append("allowPrivilegeEscalation is not false")
        if not own.get("runAsNonRoot", whole.get("runAsNonRoot")):
            found.append("runAsNonRoot is not true")
        if own.get("runAsUser", whole.get("runAsUser")) == 0:
            found.append("runAsUser is 0")
        if own.get("seccompProfile", whole.get("seccompProfile", {})).get("type") not in ("RuntimeDefault", "Localhost"):
            found.append("seccompProfile")
        capabilities = own.get("capabilities", {})
        if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
            found.append("capabilities")
        if own.get("procMount", "Default") != "Default":
            found.append("procMount")
        if any(port.get("hostPort") for port in container.get("ports", [])):
            found.append("hostPort")
    if whole.get("sysctls") or whole.get("seLinuxOptions") or whole.get("windowsOptions"):
        found.append("securityContext goes beyond")
    return found


@every_job
@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
def test_a_worker_keeps_to_the_restricted_standard(name: str, accelerator: str) -> None:
    assert violations(pod_of(JOBS[name], accelerator=accelerator)) == []


def secured(**security: Any) -> Settings:
    return msgspec.structs.replace(SETTINGS, worker_security=WorkerSecurity(**security))


def test_no_id_is_named_where_the_cluster_gives_each_namespace_its_own() -> None:
    """OpenShift refuses a pod that names a user outside its namespace's range, and fills in what is left out."""
    pod = pod_of(a_job(), settings=secured(run_as_user=None, run_as_group=None, fs_group=None))

    assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert violations(pod) == []


def test_a_worker_runs_as_whom_the_settings_name_and_stays_restricted() -> None:
    pod = pod_of(a_job(), settings=secured(run_as_user=1000650000, run_as_group=0, supplemental_groups=(5,)))

    assert pod["spec"]["securityContext"].items() >= {"runAsUser": 1000650000, "runAsGroup": 0, "supplementalGroups": [5]}.items()
    assert violations(pod) == []


def test_a_worker_has_a_user_namespace_where_the_settings_ask_for_one() -> None:
    assert pod_of(a_job(), settings=secured(user_namespaces=True))["spec"]["hostUsers"] is False
    assert "hostUsers" not in pod_of(a_job())["spec"]


@every_job
def test_a_worker_has_no_credentials_and_writes_nowhere_but_where_it_must(name: str) -> None:
    pod = pod_of(JOBS[name])

    assert pod["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod["spec"]
    assert pod["spec"]["enableServiceLinks"] is False
    assert container_of(pod)["securityContext"]["readOnlyRootFilesystem"] is True
    assert not [v for v in pod["spec"]["volumes"] if "secret" in v or "projected" in v]


@every_job
def test_a_worker_belongs_to_its_job_and_never_holds_up_its_deletion(name: str) -> None:
    (owner,) = pod_of(JOBS[name])["metadata"]["ownerReferences"]

    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("InferenceJob", "job", JOBS[name].uid, True)
    assert owner["blockOwnerDeletion"] is False
    assert "finalizers" not in pod_of(JOBS[name])["metadata"]


# Volumes.


def mounts(job: Job, model: Model | None = None) -> dict[str, bool]:
    """Claim to whether it is mounted read-only; volume and mount agree."""
    pod = pod_of(job, model)
    by_name = {v["name"]: v["persistentVolumeClaim"] for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v}
    found = {}
    for mount in container_of(pod)["volumeMounts"]:
        if mount["name"] != "tmp":
            claim = by_name[mount["name"]]
            assert mount["mountPath"] == f"/mnt/volumes/{claim['claimName']}"
            assert mount["readOnly"] == claim["readOnly"]
            found[claim["claimName"]] = mount["readOnly"]
    return found


def test_volumes_are_read_only_but_for_the_output() -> None:
    job = a_job(model="pvc://models/m", input=Input(uri="pvc://in/i"), output=Output(uri="pvc://out/o"))

    assert mounts(job) == {"models": True, "in": True, "out": False}


def test_a_volume_that_is_read_and_written_is_mounted_once() -> None:
    assert mounts(a_job(model="pvc://data/m", items=1)) == {"data": False}


def test_the_volume_of_an_inference_model_is_mounted() -> None:
    assert mounts(a_job(model="m"), a_model("m", a_version(uri="pvc://models/m.onnx"))) == {"models": True}


def test_what_is_no_volume_mounts_nothing() -> None:
    assert mounts(a_job(model="file:///m.onnx")) == {}


def test_scratch_space_is_bounded() -> None:
    (tmp,) = [v for v in pod_of(a_job())["spec"]["volumes"] if v["name"] == "tmp"]
    assert tmp["emptyDir"]["sizeLimit"]


# Placing.


def test_a_worker_is_bound_by_the_scheduler_and_to_its_node_alone() -> None:
    spec = pod_of(a_job())["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    assert "nodeName" not in spec


def test_a_worker_asks_for_its_device_and_tolerates_its_taint() -> None:
    spec = pod_of(a_job(gpu=1), accelerator="gpu")["spec"]
    resources = spec["containers"][0]["resources"]

    assert resources["requests"][GPU] == resources["limits"][GPU] == "1"
    assert {"key": GPU, "operator": "Exists"} in spec["tolerations"]


def test_the_jobs_tolerations_and_selectors_are_passed_on() -> None:
    job = a_job(node_selector={"zone": "a"}, tolerations=[Toleration(key="k", effect="NoExecute", value="v", toleration_seconds=5)])
    spec = pod_of(job)["spec"]

    assert spec["nodeSelector"] == {"zone": "a"}
    assert spec["tolerations"] == [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}]


# What users may add, and what they may not change.


def built_unchecked(job: Job) -> Manifest:
    """The pod of a job that no check has seen: the builder must hold without one."""
    assert job.spec is not None
    source, placement = ModelSource(name="m", version="1", uri="pvc://d/m"), template_placement("cpu")
    return worker_pod(job, job.spec, source, Resources(), placement, number=1, revision="r", mounts={}, settings=SETTINGS)


@given(
    st.dictionaries(st.sampled_from([names.LABEL_JOB_UID, names.LABEL_ATTEMPT, names.LABEL_MANAGED_BY, "team"]), st.just("theirs"))
)
def test_our_labels_go_over_the_users(labels: dict[str, str]) -> None:
    job = a_job(template=PodTemplate(labels=labels))
    found = built_unchecked(job)["metadata"]["labels"]

    assert found[names.LABEL_JOB_UID] == job.uid
    assert found[names.LABEL_MANAGED_BY] == names.MANAGED_BY
    assert found[names.LABEL_ATTEMPT] == "1"
    assert found.get("team") == labels.get("team")


def test_the_cluster_autoscaler_may_move_a_batch_and_not_a_service() -> None:
    """It empties no node with a pod whose owner or volumes it does not know."""
    batch, service = (built_unchecked(job)["metadata"]["annotations"] for job in (a_job(), a_job(serve=True)))

    assert (batch[names.ANNOTATION_MOVABLE], names.ANNOTATION_MOVABLE in service) == ("true", False)
    assert batch[names.ANNOTATION_MOVABLE_VOLUMES] == service[names.ANNOTATION_MOVABLE_VOLUMES] == "tmp"


def test_the_author_of_a_job_says_whether_it_may_be_moved() -> None:
    long = a_job(template=PodTemplate(annotations={names.ANNOTATION_MOVABLE: "false"}))

    assert built_unchecked(long)["metadata"]["annotations"][names.ANNOTATION_MOVABLE] == "false"


def test_users_can_not_tell_the_worker_what_to_do() -> None:
    job = a_job(
        template=PodTemplate(
            annotations={names.ANNOTATION_PLACEMENT: "{}"},
            env=[EnvironmentVariable(name=CONFIG_VARIABLE, value="{}"), EnvironmentVariable(name="APP_X", value="1")],
        )
    )
    pod = built_unchecked(job)

    assert config_of(pod).uid == job.uid
    assert {"name": "APP_X", "value": "1"} in container_of(pod)["env"]
    assert json.loads(pod["metadata"]["annotations"][names.ANNOTATION_PLACEMENT])["accelerator"] == "cpu"


def test_names_are_unique_among_the_variables() -> None:
    job = a_job(template=PodTemplate(env=[EnvironmentVariable(name="APP_X"), EnvironmentVariable(name="APP_Y")]))
    found = [entry["name"] for entry in container_of(pod_of(job))["env"]]

    assert len(found) == len(set(found))


def environment_of(pod: Manifest) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container_of(pod)["env"]}


def test_a_worker_is_told_where_traces_go_and_its_user_may_say_otherwise() -> None:
    traced = msgspec.structs.replace(SETTINGS, tracing=Tracing(endpoint="http://collector:4318", ratio=0.25))
    other = PodTemplate(env=[EnvironmentVariable(name="OTEL_TRACES_SAMPLER_ARG", value="1")])

    told = environment_of(pod_of(a_job("lane", serve=True), settings=traced))
    changed = environment_of(pod_of(a_job("lane", serve=True, template=other), settings=traced))

    assert told["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318" and told["OTEL_TRACES_SAMPLER_ARG"] == "0.25"
    assert told["OTEL_RESOURCE_ATTRIBUTES"] == "k8s.namespace.name=default,inference.job=lane"
    assert changed["OTEL_TRACES_SAMPLER_ARG"] == "1"
    assert environment_of(pod_of(a_job(serve=True))).keys() == {CONFIG_VARIABLE}


def test_a_traced_worker_is_told_the_header_by_which_the_gateway_knows_sessions() -> None:
    traced = msgspec.structs.replace(SETTINGS, tracing=Tracing(endpoint="http://collector:4318"))
    job = a_job(serve=Serve(gateway=ServeGateway(affinity_header="session-id")))

    assert config_of(pod_of(job, settings=traced)).session_header == "session-id"
    assert config_of(pod_of(a_job(serve=True), settings=traced)).session_header == ""
    # Without traces, a change of the header must not roll out the service.
    assert config_of(pod_of(job)).session_header == ""


def test_callers_change_models_only_where_the_job_allows_it() -> None:
    explicit = Serve(model_control=ModelControl.EXPLICIT)

    assert config_of(pod_of(a_job(serve=True))).model_control == "none"
    assert config_of(pod_of(a_job(serve=explicit))).model_control == "explicit"


def test_callers_share_memory_with_a_worker_only_where_the_job_allows_it() -> None:
    system = Serve(shared_memory=SharedMemory.SYSTEM)

    assert config_of(pod_of(a_job(serve=True))).shared_memory is False
    assert config_of(pod_of(a_job(serve=system))).shared_memory is True
    # The runtime gives the containers of a pod one /dev/shm: a volume or the host's memory would let others in.
    assert pod_of(a_job(serve=system))["spec"]["volumes"] == pod_of(a_job(serve=True))["spec"]["volumes"]


def test_a_worker_is_told_of_the_variant_and_mounts_its_rows() -> None:
    wanted_variant = QuantizationSpec(
        method=QuantizationMethod.STATIC, evaluation="pvc://rows/e.npy", calibration="pvc://rows/c.npy", labels="pvc://truth/l.npy"
    )
    version = ModelVersion(name="1", uri="pvc://models/m.onnx", digest=DIGEST, quantization=wanted_variant)
    job, model = a_job(model="m", serve=True), a_model("m", version)

    told = config_of(pod_of(job, model)).model.quantization

    assert told == Quantization(
        method="static", evaluation_uri="pvc://rows/e.npy", calibration_uri="pvc://rows/c.npy", labels_uri="pvc://truth/l.npy"
    )
    assert mounts(job, model) == {"models": True, "rows": True, "truth": True}


def test_nothing_empty_is_sent() -> None:
    assert not [key for key, value in pod_of(a_job())["spec"].items() if value in (None, {}, [])]


# What the worker is told.


def test_a_batch_is_told_its_task() -> None:
    config = config_of(pod_of(a_job(items=5, batch_size=8, model="m"), a_model()))

    assert config.task is not None
    assert (config.task.input_uri, config.task.output_uri, config.batch_size) == ("pvc://data/in.npy", "pvc://data/out", 8)
    assert (config.model.name, config.model.digest, config.attempt) == ("m", DIGEST, 1)
    assert config.providers == ("CPUExecutionProvider",)


def test_a_serving_job_has_no_task() -> None:
    assert config_of(pod_of(a_job(serve=True))).task is None


@pytest.mark.parametrize("grace", [0, 1, 30, 3600])
def test_a_worker_drains_within_its_grace(grace: int) -> None:
    pod = pod_of(a_job(), settings=Settings(termination_grace_seconds=grace))

    assert pod["spec"]["terminationGracePeriodSeconds"] == grace
    assert 0 < config_of(pod).drain_seconds <= max(1, grace)


# What the store assumes until the pod is there.


@every_job
@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
def test_the_assumed_pod_is_the_pod_that_comes(name: str, accelerator: str) -> None:
    action = created(JOBS[name], accelerator=accelerator)
    manifest = action.manifest | {"metadata": {**action.manifest["metadata"], "uid": "u"}}
    real = parse_pod(manifest)

    assert (real.key, real.requests, real.worker) == (action.assumed.key, action.assumed.requests, action.assumed.worker)
    assert action.assumed.uid == ""


def test_the_jobs_own_resources_are_counted_alike() -> None:
    action = created(a_job(resources=Resources(requests={"cpu": "2"}, limits={"memory": "3Gi"})))
    manifest = action.manifest | {"metadata": {**action.manifest["metadata"], "uid": "u"}}

    assert parse_pod(manifest).requests == action.assumed.requests


def test_a_worker_is_asked_once_whether_it_has_started_and_may_take_hours_to_load() -> None:
    """Asked each second, it would have to say "not yet" each second, and each of these is an event of type Warning."""
    probe = container_of(pod_of(a_job(serve=True)))["startupProbe"]

    assert probe["httpGet"] == {"path": "/startedz", "port": "health"}
    assert probe["timeoutSeconds"] > _HELD_SECONDS, "the worker answers first"
    assert probe["timeoutSeconds"] * probe["failureThreshold"] == 4 * 3600


@pytest.mark.parametrize(("seconds", "tries"), [(0.0, 1), (1.0, 1), (300.0, 1), (301.0, 2), (86400.0, 288)])
def test_a_load_that_hangs_holds_its_device_no_longer_than_the_setting_allows(seconds: float, tries: int) -> None:
    settings = msgspec.structs.replace(SETTINGS, load_timeout_seconds=seconds)

    assert container_of(pod_of(a_job(serve=True), settings=settings))["startupProbe"]["failureThreshold"] == tries
