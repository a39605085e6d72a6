"""The policies on the operator's account: whoever has its token tries each thing that RBAC alone would let it do."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from inference_operator.api.names import LABEL_PLACEHOLDER
from inference_operator.autoscaling.metricsapi.endpoint import Replica, leader_slice
from inference_operator.state.objects import Key
from inference_operator.template_limits import RESERVED_ENVIRONMENT, TemplateLimits
from inference_operator.workers import triton
from inference_operator.workers.placeholder import COMMAND, create_placeholder
from inference_protocol.messages import CONFIG_VARIABLE
from inference_protocol.node_cache import GRANT_VARIABLE
from tests import builders
from tests.builders import NOW, SETTINGS, observed, resolved_of
from tests.cluster.client import APPLY, Answer, Client, jobs, models, pods
from tests.cluster.conftest import make_namespace
from tests.cluster.objects import LATER, a_batch, a_condition, a_job, a_model
from tests.cluster.operators import ACCOUNT, RELEASE_NAMESPACE, Installed, Release, render, until
from tests.simulation.cluster import config_of

if TYPE_CHECKING:
    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
UID = "0b9a3c5e-0000-4000-8000-000000000000"
DRY = {"dryRun": "All"}
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


@pytest.fixture(scope="module")
def account(cluster: Cluster, installed: Installed) -> Client:
    """The operator's account, once the policies are in force: the API server takes a second to hear of them."""
    client = Client(cluster.kubeconfig, token=installed.token)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{RELEASE_NAMESPACE}/leases"
    until(lambda: client.call("POST", lease, {"metadata": {"name": "x"}}, **DRY).code == 403, "the policies")
    return client


@pytest.fixture(scope="module")
def worker(cluster: Cluster, installed: Installed) -> Raw:
    """A pod as the operator makes it."""
    namespace = make_namespace(cluster.client)
    cluster.client.create(models(namespace), a_model())
    cluster.client.create(jobs(namespace), a_batch())
    made = installed.worker(namespace)
    spec = {k: v for k, v in made["spec"].items() if k not in ("nodeName", "serviceAccount")}
    kept = {k: made["metadata"][k] for k in ("labels", "annotations", "ownerReferences", "namespace")}
    # An API server that has the admission of accounts sets it before policies are asked.
    return {"metadata": {**kept, "name": "made-by-a-thief"}, "spec": {**spec, "serviceAccountName": "default"}}


def tried(account: Client, path: str, body: Raw) -> Answer:
    return account.call("POST", path, body, **DRY)


def first(pod: Raw) -> Raw:
    found: Raw = pod["spec"]["containers"][0]
    return found


def with_volume(source: Raw) -> Any:
    return lambda pod: pod["spec"].setdefault("volumes", []).append({"name": "v", **source})


def projected(source: Raw) -> Any:
    return with_volume({"projected": {"sources": [source]}})


def of_spec(**fields: Any) -> Any:
    return lambda pod: pod["spec"].update(fields)


def of_container(**fields: Any) -> Any:
    return lambda pod: first(pod).update(fields)


def with_variable(name: str, value: str) -> Any:
    return lambda pod: first(pod)["env"].append({"name": name, "value": value})


def with_device(path: str) -> Any:
    def change(pod: Raw) -> None:
        with_volume({"persistentVolumeClaim": {"claimName": "data"}})(pod)
        first(pod)["volumeDevices"] = [{"name": "v", "devicePath": path}]

    return change


def mounted(path: str) -> Any:
    return lambda pod: first(pod)["volumeMounts"].append({"name": "tmp", "mountPath": path})


def of_security(**fields: Any) -> Any:
    return lambda pod: first(pod)["securityContext"].update(fields)


def of_pod_security(**fields: Any) -> Any:
    return lambda pod: pod["spec"]["securityContext"].update(fields)


def of_metadata(**fields: Any) -> Any:
    return lambda pod: pod["metadata"].update(fields)


SIDECAR: Raw = {
    "name": "more",
    "image": "evil.example.com/miner:1",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}


def extra(**fields: Any) -> Raw:
    """A container of a template, of an image that the administrator lists."""
    return {**SIDECAR, "name": "extra-proxy", "image": "tools.example.com/proxy:1", **fields}


FOREIGN = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": UID, "controller": True}
FORGED = {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "name": "x", "uid": UID, "controller": True}
BAD_PODS: dict[str, tuple[Any, str]] = {
    "no labels": (of_metadata(labels={}), "only what has its labels"),
    "no owner": (of_metadata(ownerReferences=[]), "only what has its labels"),
    "the owner of something else": (of_metadata(ownerReferences=[FOREIGN]), "only what has its labels"),
    "an owner beside that of its labels": (of_metadata(ownerReferences=[FORGED]), "only what has its labels"),
    "a second owner": (lambda p: p["metadata"]["ownerReferences"].append({**FOREIGN, "controller": False}), "has one owner"),
    "another image": (of_container(image="evil.example.com/miner:1"), "and not evil.example.com/miner:1"),
    "the worker's image by another tag": (of_container(image="localhost/inference-worker:evil"), "and not localhost/"),
    "a second container": (lambda p: p["spec"]["containers"].append(SIDECAR), "and not evil.example.com/miner:1"),
    "an init container": (of_spec(initContainers=[SIDECAR]), "and not evil.example.com/miner:1"),
    "the node's network": (of_spec(hostNetwork=True), "no namespace or port of the node"),
    "the node's processes": (of_spec(hostPID=True), "no namespace or port of the node"),
    "the node's IPC": (of_spec(hostIPC=True), "no namespace or port of the node"),
    "a port of the node": (of_container(ports=[{"containerPort": 80, "hostPort": 80}]), "no namespace or port of the node"),
    "a node by name": (of_spec(nodeName="node-1"), "bound by kube-scheduler"),
    "another scheduler": (of_spec(schedulerName="mine"), "bound by kube-scheduler"),
    "a path of the node": (with_volume({"hostPath": {"path": "/"}}), "claims, empty directories and projections alone"),
    "a Secret": (with_volume({"secret": {"secretName": "s"}}), "claims, empty directories and projections alone"),
    "a ConfigMap": (with_volume({"configMap": {"name": "c"}}), "claims, empty directories and projections alone"),
    "a token by projection": (
        projected({"serviceAccountToken": {"path": "t"}}),
        "tokens for the operator's authority and AWS' token service alone",
    ),
    "a token for another audience": (
        projected({"serviceAccountToken": {"path": "t", "audience": "https://other.example.com"}}),
        "tokens for the operator's authority and AWS' token service alone",
    ),
    "a Secret by projection": (
        projected({"secret": {"name": "s"}}),
        "and of settings.podTemplate.secrets, and not s; ask the administrator",
    ),
    "a ConfigMap by projection": (projected({"configMap": {"name": "c"}}), "no projections but those"),
    "an SELinux type": (of_pod_security(seLinuxOptions={"type": "spc_t"}), "no SELinux context"),
    "an SELinux type of the container": (of_security(seLinuxOptions={"type": "spc_t"}), "no SELinux context"),
    "the token of its account": (of_spec(automountServiceAccountToken=True), "no token of it"),
    "privilege escalation": (of_security(allowPrivilegeEscalation=True), "unprivileged"),
    "a capability": (of_security(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}), "unprivileged"),
    "capabilities that are not dropped": (of_security(capabilities={}), "unprivileged"),
    "a root file system to write to": (of_security(readOnlyRootFilesystem=False), "unprivileged"),
    "root in the container": (of_security(runAsUser=0, runAsNonRoot=False), "unprivileged"),
    "no seccomp in the container": (of_security(seccompProfile={"type": "Unconfined"}), "unprivileged"),
    "no AppArmor in the container": (of_security(appArmorProfile={"type": "Unconfined"}), "unprivileged"),
    "no context in the container": (lambda p: first(p).pop("securityContext"), "unprivileged"),
    "root in the pod": (of_pod_security(runAsUser=0, runAsNonRoot=False), "are no root"),
    "no seccomp in the pod": (of_pod_security(seccompProfile={"type": "Unconfined"}), "are no root"),
    "no AppArmor in the pod": (of_pod_security(appArmorProfile={"type": "Unconfined"}), "are no root"),
    "no context in the pod": (lambda p: p["spec"].pop("securityContext"), "are no root"),
    "kernel parameters": (of_pod_security(sysctls=[{"name": "net.ipv4.tcp_syncookies", "value": "0"}]), "are no root"),
    "a command": (of_container(command=["sh", "-c", "id"]), "run what their images run"),
    "arguments": (of_container(args=["-c", "import os"]), "run what their images run"),
    "a hook": (of_container(lifecycle={"postStart": {"exec": {"command": ["id"]}}}), "run what their images run"),
    "a probe that runs": (of_container(livenessProbe={"exec": {"command": ["id"]}}), "run what their images run"),
    "other arguments of Triton": (
        of_container(command=["tritonserver", "--backend-directory=/mnt/volumes/data"]),
        "run what their images run",
    ),
    "a variable of the loader": (with_variable("LD_PRELOAD", "/mnt/volumes/data/x.so"), "the loader, Python or a runtime obeys"),
    "a variable of Python": (with_variable("PYTHONSTARTUP", "/tmp/x.py"), "the loader, Python or a runtime obeys"),
    "another configuration beside its own": (with_variable("INFERENCE_HTTP_PORT", "80"), "the loader, Python or a runtime obeys"),
    "code from an annotation in the place of the image's": (mounted("/usr/lib/python3"), "mount nothing over"),
    "a claim over the image's commands": (mounted("/mnt/volumes/../../usr/bin"), "mount nothing over"),
    "a device over the image's files": (with_device("/usr/bin/x"), "mount nothing over"),
    "a probe of the cloud's metadata service": (
        of_container(startupProbe={"httpGet": {"host": "169.254.169.254", "port": 80, "path": "/"}}),
        "probes ask the worker itself",
    ),
    "a probe of the node's own ports": (
        of_container(livenessProbe={"tcpSocket": {"host": "127.0.0.1", "port": 10250}}),
        "probes ask the worker itself",
    ),
    "a Secret as variables": (of_container(envFrom=[{"prefix": "APP_", "secretRef": {"name": "s"}}]), "and not s; ask"),
    "variables of any name": (of_container(envFrom=[{"configMapRef": {"name": "c"}}]), "only under the prefixes"),
    "variables whose names complete a reserved one": (
        of_container(envFrom=[{"prefix": "L", "configMapRef": {"name": "c"}}]),
        "only under the prefixes",
    ),
    "a reserved variable from a ConfigMap": (
        lambda p: first(p)["env"].append({"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}),
        "that the loader, Python or a runtime obeys",
    ),
    "its grant from a ConfigMap": (
        lambda p: first(p)["env"].append({"name": GRANT_VARIABLE, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}),
        "that the loader, Python or a runtime obeys",
    ),
    "its configuration from a ConfigMap": (
        lambda p: first(p)["env"].append({"name": CONFIG_VARIABLE, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}),
        "that the loader, Python or a runtime obeys",
    ),
    "another's Secret as a template's volume": (
        lambda p: p["spec"]["volumes"].append({"name": "extra-v", "secret": {"secretName": "s"}}),
        "and not s; ask",
    ),
    "a token as a template's volume": (
        lambda p: p["spec"]["volumes"].append(
            {"name": "extra-v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
        ),
        "tokens for the operator's authority",
    ),
    "a path of the node as a template's volume": (
        lambda p: p["spec"]["volumes"].append({"name": "extra-v", "hostPath": {"path": "/"}}),
        "claims, empty directories and projections alone",
    ),
    "a sidecar of another image": (
        of_spec(initContainers=[extra(image="evil.example.com/miner:1")]),
        "and not evil.example.com/miner:1",
    ),
    "a sidecar that is not confined": (
        of_spec(initContainers=[extra(securityContext={"runAsUser": 1000})]),
        "a worker's containers are unprivileged",
    ),
    "a sidecar with another's Secret": (
        of_spec(initContainers=[extra(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])]),
        "and not s; ask",
    ),
    "a sidecar in the worker's own directory": (
        of_spec(initContainers=[extra(volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}])]),
        "mount the volumes of templates alone",
    ),
    "a tool's image as the worker": (of_container(image="tools.example.com/proxy:1"), "and not tools.example.com/proxy:1"),
    "a template's volume over the image": (
        lambda p: (
            p["spec"]["volumes"].append({"name": "extra-v", "emptyDir": {}}),
            first(p)["volumeMounts"].append({"name": "extra-v", "mountPath": "/opt/app"}),
        ),
        "mount nothing over",
    ),
    "a Secret as a variable": (
        lambda p: first(p)["env"].append({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
        "and not s; ask",
    ),
    "an annotation for AppArmor": (
        lambda p: p["metadata"]["annotations"].update({"container.apparmor.security.beta.kubernetes.io/worker": "unconfined"}),
        "unprivileged",
    ),
    "a priority of the system": (
        of_spec(priorityClassName="system-node-critical", priority=2000001000),
        "no priority of the system",
    ),
    "a toleration of every taint": (of_spec(tolerations=[{"operator": "Exists"}]), "and not every taint"),
    "a toleration of the control plane's taint": (
        of_spec(tolerations=[{"key": CONTROL_PLANE, "operator": "Exists"}]),
        f"settings.podTemplate.tolerations, and not {CONTROL_PLANE}",
    ),
    "a toleration beside those of its class": (
        of_spec(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "bank", "operator": "Exists"}]),
        "and not bank",
    ),
    "another address for a known host": (
        of_spec(hostAliases=[{"ip": "203.0.113.1", "hostnames": ["models.example.com"]}]),
        "by the cluster's DNS alone",
    ),
    "a name server of its own": (of_spec(dnsPolicy="None", dnsConfig={"nameservers": ["203.0.113.1"]}), "cluster's DNS alone"),
    "a search domain of its own": (of_spec(dnsConfig={"searches": ["evil.example.com"]}), "by the cluster's DNS alone"),
    "the node's name servers": (of_spec(dnsPolicy="Default"), "by the cluster's DNS alone"),
    "processes that its containers share": (of_spec(shareProcessNamespace=True), "share no processes"),
    "a device that it claims": (
        of_spec(resourceClaims=[{"name": "d", "resourceClaimName": "theirs"}]),
        "its devices are those of its accelerator class",
    ),
}


def test_a_pod_as_the_operator_makes_it_is_let_in(account: Client, worker: Raw) -> None:
    answer = tried(account, pods(worker["metadata"]["namespace"]), worker)

    assert answer.ok, answer.message


def a_placeholder(worker: Raw) -> Raw:
    """A placeholder pod of that worker's job, as the operator makes it."""
    seen = observed(builders.a_job(gpu=1))
    made = copy.deepcopy(create_placeholder(resolved_of(seen), "gpu", number=1, settings=SETTINGS, now=NOW).manifest)
    owner = worker["metadata"]["ownerReferences"]
    made["metadata"] |= {"namespace": worker["metadata"]["namespace"], "ownerReferences": owner}
    made["metadata"]["labels"][LABEL_PLACEHOLDER] = owner[0]["uid"]
    first(made)["image"] = first(worker)["image"]
    made["spec"]["serviceAccountName"] = "default"
    return made


def test_a_placeholder_pod_is_let_in_for_its_own_job_and_only_waits(account: Client, worker: Raw) -> None:
    path, good = pods(worker["metadata"]["namespace"]), a_placeholder(worker)
    works, of_another = copy.deepcopy(good), copy.deepcopy(good)
    first(works)["command"] = ["python3", "-c", "print()"]
    of_another["metadata"]["labels"][LABEL_PLACEHOLDER] = UID

    assert tried(account, path, good).ok, tried(account, path, good).message
    assert "workers run what their images run" in tried(account, path, works).message
    assert "belongs to the InferenceJob" in tried(account, path, of_another).message


def test_every_shape_of_worker_is_let_in(cluster: Cluster, installed: Installed, account: Client, namespace: str) -> None:
    cluster.client.create(models(namespace), a_model())
    cluster.client.create(models(namespace), a_model("pool", warmPool={"min": 1}))
    template = {
        "labels": {"team": "a"},
        "env": [{"name": "APP_X", "value": "1"}],
        "imagePullSecrets": ["pull"],
    }
    volumes = {"input": {"uri": "pvc://in/x.npy", "items": 5}, "output": {"uri": "pvc://out/x"}}
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    for job in (
        a_job("serves", replicas=1),
        a_job("by-triton", replicas=1, backend="triton"),
        a_job("lends", replicas=1, serve={"latencyTargetMilliseconds": 50, "slack": {"claims": ["data", "more"]}}),
        a_batch("over-claims", **volumes),
        a_batch("by-uri", model="pvc://data/model.onnx"),
        a_batch("with-template", template=template, tolerations=[toleration]),
    ):
        cluster.client.create(jobs(namespace), job)

    names = ("serves", "lends", "over-claims", "by-uri", "with-template")
    made = {name: installed.worker(namespace, name=name) for name in names}
    (sidecar,) = installed.worker(namespace, name="by-triton")["spec"]["initContainers"]
    assert sidecar["image"] == "localhost/triton:1"
    assert any("persistentVolumeClaim" in volume for volume in made["over-claims"]["spec"]["volumes"])
    # A service that lends its slack mounts the claims of batches, and takes tasks as warm workers do.
    lent = [v["persistentVolumeClaim"] for v in made["lends"]["spec"]["volumes"] if "persistentVolumeClaim" in v]
    assert {claim["claimName"]: claim.get("readOnly", False) for claim in lent} == {"data": False, "more": False}
    assert config_of(made["lends"]).task_token_digest and not config_of(made["serves"]).task_token_digest
    of_pool = f"{pods(namespace)}?labelSelector=inference.myorg/model=pool"
    until(lambda: cluster.client.get(of_pool)["items"], "the warm worker")
    installed.run(made["serves"])
    until(lambda: cluster.client.call("GET", f"/api/v1/namespaces/{namespace}/services/serves").ok, "the Service")
    cluster.client.merge(f"{jobs(namespace)}/serves", {"spec": {"suspend": True}})
    path = f"{pods(namespace)}/{made['serves']['metadata']['name']}"
    until(lambda: cluster.client.get(path)["metadata"].get("deletionTimestamp"), "the deletion of its worker")


@pytest.mark.parametrize(
    "change",
    [
        projected({"serviceAccountToken": {"path": "t", "audience": "spiffe://cluster.local/ns/a/sa/b/certificates"}}),
        projected({"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
        projected({"secret": {"name": "shown-to-callers"}}),
        of_pod_security(seLinuxOptions={"level": "s0:c1,c2"}),
        of_security(runAsUser=1000650000),
        of_spec(hostUsers=False),
        of_container(image="mirror.example.com/inference-worker:1"),
        of_spec(tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]),
        of_spec(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]),
        with_variable(GRANT_VARIABLE, "{}"),
    ],
    ids=[
        "a token for the operator",
        "its own name",
        "a Secret of the list",
        "a level",
        "another user",
        "user namespaces",
        "a mirror",
        "time on a node that fails",
        "a taint of a class",
        "a grant for its node's cache",
    ],
)
def test_what_the_settings_or_the_cluster_add_is_let_in(account: Client, worker: Raw, change: Any) -> None:
    pod = copy.deepcopy(worker)
    change(pod)

    assert tried(account, pods(worker["metadata"]["namespace"]), pod).message == ""


@pytest.mark.parametrize(("change", "says"), BAD_PODS.values(), ids=BAD_PODS)
def test_the_account_makes_no_pod_with(account: Client, worker: Raw, change: Any, says: str) -> None:
    pod = copy.deepcopy(worker)
    change(pod)
    answer = tried(account, pods(worker["metadata"]["namespace"]), pod)

    assert answer.code == 403, answer.message
    assert says in answer.message
    assert "ValidatingAdmissionPolicy 'inference-operator-pods'" in answer.message


def test_a_privileged_container_is_refused_by_the_policy_too(worker: Raw) -> None:
    """This API server lets nobody have one, so no request comes as far as the policy."""
    policy = next(one for one in yaml.safe_load_all(render("admission-policies.yaml")) if one["metadata"]["name"].endswith("-pods"))

    assert any("!c.securityContext.?privileged.orValue(false)" in v["expression"] for v in policy["spec"]["validations"])


def test_another_account_of_the_pod_is_refused(cluster: Cluster, account: Client, worker: Raw) -> None:
    namespace = worker["metadata"]["namespace"]
    cluster.client.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "strong"}})
    pod = {**worker, "spec": {**worker["spec"], "serviceAccountName": "strong"}}

    assert 'the account "default"' in tried(account, pods(namespace), pod).message


def test_a_runtime_that_no_job_may_name_is_refused(cluster: Cluster, account: Client, worker: Raw) -> None:
    for name in ("nvidia", "without-a-sandbox"):
        cluster.client.create("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": name}, "handler": name})

    def says(name: str) -> str:
        pod = {**worker, "spec": {**worker["spec"], "runtimeClassName": name}}
        return tried(account, pods(worker["metadata"]["namespace"]), pod).message

    assert says("nvidia") == ""
    assert "accelerators and of settings.podTemplate.runtimeClasses, and not by without-a-sandbox" in says("without-a-sandbox")


def test_the_policy_takes_the_lists_of_the_settings() -> None:
    limits = "settings.podTemplate.runtimeClasses={kata}", "settings.podTemplate.tolerations={spot*}"
    plain, given = _lists(Release()), _lists(Release(values=(*limits, *A_CLASS)))

    assert plain["runtimeClasses"] == list(TemplateLimits().runtime_classes)
    assert given["runtimeClasses"] == ["kata", "npu-runtime"]
    assert {"spot*", "npu", "example.com/npu"} == {*given["tolerations"]} - {*plain["tolerations"]}


A_CLASS = (
    "accelerators.npu.executionProviders={CPUExecutionProvider}",
    "accelerators.npu.resourceName=example.com/npu",
    "accelerators.npu.tolerations[0].key=npu",
    "accelerators.npu.runtimeClassName=npu-runtime",
    "accelerators.npu.wattsBusy=10",
)


def _lists(release: Release) -> dict[str, list[str]]:
    policies = yaml.safe_load_all(release.render("admission-policies.yaml"))
    policy = next(one for one in policies if one["metadata"]["name"].endswith("-pods"))
    lists = ("runtimeClasses", "tolerations")
    return {v["name"]: json.loads(v["expression"]) for v in policy["spec"]["variables"] if v["name"] in lists}


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", RELEASE_NAMESPACE])
def test_nothing_is_made_beside_what_rules_the_cluster(account: Client, worker: Raw, namespace: str) -> None:
    pod = {**worker, "metadata": {**worker["metadata"], "namespace": namespace}}

    answer = tried(account, pods(namespace), pod)

    assert answer.code == 403
    assert "create the job in another namespace" in answer.message


def test_a_job_in_the_operators_namespace_is_told_why_it_gets_no_worker(
    cluster: Cluster, installed: Installed, account: Client
) -> None:
    cluster.client.create(jobs(RELEASE_NAMESPACE), a_batch("misplaced", model="pvc://data/model.onnx"))
    job = installed.wait_reason(RELEASE_NAMESPACE, "PodRefused", kind="Reconciling", name="misplaced")
    cluster.client.delete(f"{jobs(RELEASE_NAMESPACE)}/misplaced")

    assert any("create the job in another namespace" in c["message"] for c in job["status"]["conditions"])


def test_the_policies_look_at_nobody_else(cluster: Cluster, worker: Raw) -> None:
    namespace = worker["metadata"]["namespace"]
    plain = {"metadata": {"name": "plain"}, "spec": {"containers": [{"name": "c", "image": "busybox"}], "hostNetwork": True}}

    assert tried(cluster.client, pods(namespace), plain).ok
    assert tried(cluster.client, pods("kube-system"), plain).ok


def test_the_account_deletes_only_pods_of_its_own(cluster: Cluster, account: Client, worker: Raw) -> None:
    namespace = worker["metadata"]["namespace"]
    forged = {k: v for k, v in worker["metadata"].items() if k != "ownerReferences"} | {"name": "labels-alone"}
    container = {"containers": [{"name": "c", "image": "busybox"}]}
    for metadata in ({"name": "theirs"}, forged):
        cluster.client.create(pods(namespace), {"metadata": metadata, "spec": container})
    cluster.client.create(pods("kube-system"), {"metadata": {"name": "theirs"}, "spec": container})

    for path in (f"{pods(namespace)}/theirs", f"{pods(namespace)}/labels-alone", f"{pods('kube-system')}/theirs"):
        answer = account.delete(path)
        assert answer.code == 403
        assert "the operator makes, changes and deletes" in answer.message
    cluster.client.delete(f"{pods('kube-system')}/theirs")
    cluster.client.create(pods(namespace), worker)
    assert account.delete(f"{pods(namespace)}/{worker['metadata']['name']}").ok


def test_the_account_deletes_only_jobs_that_have_ended_and_are_to_go(cluster: Cluster, account: Client, namespace: str) -> None:
    def refused(name: str) -> str:
        answer = account.call("DELETE", f"{jobs(namespace)}/{name}", dryRun="All")
        return "" if answer.ok else answer.message

    for name, spec in (("runs", {"ttlSecondsAfterFinished": 9}), ("stays", {}), ("goes", {"ttlSecondsAfterFinished": 10**6})):
        cluster.client.create(jobs(namespace), a_job(name, suspend=True, **spec))
    for name in ("stays", "goes"):
        # The operator runs beside this, and deletes what has ended long ago.
        ended = {"status": {"conditions": [a_condition("Succeeded") | {"lastTransitionTime": LATER}]}}
        cluster.client.merge(f"{jobs(namespace)}/{name}/status", ended)

    assert "jobs that have ended and have ttlSecondsAfterFinished" in refused("runs")
    assert "jobs that have ended and have ttlSecondsAfterFinished" in refused("stays")
    assert refused("goes") == ""


def of_job(worker: Raw, name: str, spec: Raw) -> Raw:
    """An object with the labels and the owner of a worker."""
    kept = {k: worker["metadata"][k] for k in ("labels", "ownerReferences", "namespace")}
    return {"metadata": {**kept, "name": name}, "spec": spec}


def test_a_service_takes_in_the_workers_of_its_job_alone_and_stays_inside(account: Client, worker: Raw) -> None:
    path = f"/api/v1/namespaces/{worker['metadata']['namespace']}/services"
    label = "inference.myorg/job-uid"
    plain: Raw = {"selector": {label: worker["metadata"]["labels"][label]}, "ports": [{"port": 80}]}

    def says(body: Raw) -> str:
        return tried(account, path, body).message

    assert says(of_job(worker, "mine", plain)) == ""
    assert "inside the cluster alone" in says(of_job(worker, "x", {**plain, "type": "LoadBalancer"}))
    assert "inside the cluster alone" in says(of_job(worker, "x", {**plain, "type": "NodePort"}))
    assert "inside the cluster alone" in says(of_job(worker, "x", {"type": "ExternalName", "externalName": "example.com"}))
    assert "inside the cluster alone" in says(of_job(worker, "x", {**plain, "externalIPs": ["8.8.8.8"]}))
    assert "of their own job" in says(of_job(worker, "x", {**plain, "selector": {label: UID}}))
    assert "of their own job" in says(of_job(worker, "x", {**plain, "selector": {"app": "bank"}}))
    assert "only what has its labels" in says({"metadata": {"name": "x"}, "spec": plain})


def a_slice(worker: Raw, *, service: str = "", writer: str = "inference-operator.inference.myorg", **changes: Any) -> Raw:
    """An EndpointSlice as the operator makes it."""
    owner = worker["metadata"]["ownerReferences"][0]
    of_service = {"kubernetes.io/service-name": service or owner["name"], "endpointslice.kubernetes.io/managed-by": writer}
    body = of_job(worker, "slice", {})
    labels = {**body["metadata"]["labels"], **of_service}
    target = {"kind": "Pod", "namespace": worker["metadata"]["namespace"], "name": "any"}
    endpoints = [{"addresses": ["10.0.0.1"], "targetRef": target}]
    ports = [{"name": "http", "port": 8000, "protocol": "TCP"}]
    found = {"metadata": {**body["metadata"], "labels": labels}, "addressType": "IPv4", "ports": ports, "endpoints": endpoints}
    return {**found, **changes}


def test_a_slice_leads_callers_of_its_own_job_to_ports_of_workers_alone(account: Client, worker: Raw) -> None:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{worker['metadata']['namespace']}/endpointslices"

    def says(body: Raw) -> str:
        return tried(account, path, body).message

    target = {"kind": "Pod", "namespace": "bank", "name": "any"}
    assert says(a_slice(worker)) == ""
    assert says(a_slice(worker, service="job-headless")) == ""
    assert "the Service of their own job" in says(a_slice(worker, service="bank"))
    assert "the Service of their own job" in says(a_slice(worker, service="bank-0123abcd"))
    assert "of its own" in says(a_slice(worker, writer="endpointslice-controller.k8s.io"))
    assert "of its own" in says({**a_slice(worker), "metadata": {"name": "x"}})
    for wrong in (
        {"ports": [{"name": "http", "port": 443, "protocol": "TCP"}]},
        {"addressType": "FQDN", "endpoints": [{"addresses": ["example.com"]}]},
        {"endpoints": [{"addresses": ["10.0.0.1"]}]},
        {"endpoints": [{"addresses": ["10.0.0.1"], "targetRef": target}]},
    ):
        assert "lead to the ports of workers" in says(a_slice(worker, **wrong))


def test_slices_and_endpoints_of_others_stay(cluster: Cluster, account: Client, worker: Raw) -> None:
    namespace = worker["metadata"]["namespace"]
    slices, endpoints = (
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
        f"/api/v1/namespaces/{namespace}/endpoints",
    )
    theirs = {
        "metadata": {"name": "theirs", "labels": {"kubernetes.io/service-name": "bank"}},
        "addressType": "IPv4",
        "endpoints": [],
    }
    cluster.client.create(slices, theirs)
    cluster.client.create(endpoints, {"metadata": {"name": "bank"}})

    assert "of its own" in account.delete(f"{slices}/theirs").message
    assert "Endpoints that were written for a Service of its own" in account.delete(f"{endpoints}/bank").message


def test_an_autoscaler_scales_the_job_that_it_belongs_to(cluster: Cluster, account: Client, worker: Raw) -> None:
    path = f"/apis/autoscaling/v2/namespaces/{worker['metadata']['namespace']}/horizontalpodautoscalers"
    job = worker["metadata"]["ownerReferences"][0]["name"]

    def scaling(kind: str, name: str, api: str = "inference.myorg/v1") -> Raw:
        return {"scaleTargetRef": {"apiVersion": api, "kind": kind, "name": name}, "minReplicas": 1, "maxReplicas": 2}

    def says(body: Raw) -> str:
        return tried(account, path, body).message

    assert says(of_job(worker, "mine", scaling("InferenceJob", job))) == ""
    assert "scale the InferenceJob" in says(of_job(worker, "x", scaling("Deployment", "bank", "apps/v1")))
    assert "scale the InferenceJob" in says(of_job(worker, "x", scaling("InferenceJob", "another")))

    theirs = {"metadata": {"name": "theirs"}, "spec": scaling("Deployment", "bank", "apps/v1")}
    cluster.client.create(path, theirs)
    taken = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        **of_job(worker, "theirs", scaling("InferenceJob", job)),
    }
    stolen = account.call("PATCH", f"{path}/theirs", taken, kind=APPLY, fieldManager="x", force="true")
    assert "only what has its labels" in stolen.message
    assert account.delete(f"{path}/theirs").code == 403


def test_a_budget_is_for_the_workers_of_the_job_that_it_belongs_to(cluster: Cluster, account: Client, worker: Raw) -> None:
    path = f"/apis/policy/v1/namespaces/{worker['metadata']['namespace']}/poddisruptionbudgets"
    uid = worker["metadata"]["labels"]["inference.myorg/job-uid"]

    def says(selector: Raw) -> str:
        return tried(account, path, of_job(worker, "mine", {"minAvailable": 1, "selector": selector})).message

    assert says({"matchLabels": {"inference.myorg/job-uid": uid}}) == ""
    for selector in ({}, {"matchLabels": {"app": "bank"}}, {"matchLabels": {"inference.myorg/job-uid": "another"}}):
        assert "workers of their own job" in says(selector)

    cluster.client.create(path, {"metadata": {"name": "theirs"}, "spec": {"minAvailable": 1}})
    assert account.delete(f"{path}/theirs").code == 403


def test_events_are_of_jobs_and_in_the_operators_name(account: Client, namespace: str) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    job = {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "namespace": namespace, "name": "j"}
    event: Raw = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "inference.myorg/operator",
        "reportingInstance": "me",
        "action": "Reconcile",
        "reason": "R",
        "type": "Normal",
        "regarding": job,
    }

    assert tried(account, path, event).ok
    for forged in ({"reportingController": "kubelet"}, {"regarding": {**job, "apiVersion": "v1", "kind": "Pod"}}):
        assert "in its own name" in tried(account, path, {**event, **forged}).message


METRICS_API = f"{ACCOUNT}-metrics-api"


def a_metrics_slice(name: str = f"{METRICS_API}-ipv4", *, service: str = METRICS_API, **changes: Any) -> Raw:
    """As the operator writes it."""
    slice_ = leader_slice(Key(RELEASE_NAMESPACE, METRICS_API), UID, Replica("operator-1", "10.0.0.1"), port=8443)
    labels = {**slice_["metadata"]["labels"], "kubernetes.io/service-name": service}
    return {**slice_, "metadata": {**slice_["metadata"], "name": name, "labels": labels}, **changes}


def test_the_metrics_api_is_led_to_the_operators_pods_and_nowhere_else(cluster: Cluster, account: Client) -> None:
    def says(body: Raw) -> str:
        path = f"/apis/discovery.k8s.io/v1/namespaces/{RELEASE_NAMESPACE}/endpointslices/{body['metadata']['name']}"
        return account.call("PATCH", path, body, kind=APPLY, fieldManager="x", **DRY).message

    target = {"kind": "Pod", "namespace": "bank", "name": "any"}
    assert says(a_metrics_slice()) == ""
    assert "nothing in kube-system" in says(a_metrics_slice("another"))
    for wrong in (
        a_metrics_slice(service="kubernetes"),
        a_metrics_slice(ports=[{"name": "custom-metrics", "port": 443, "protocol": "TCP"}]),
        a_metrics_slice(addressType="FQDN", endpoints=[{"addresses": ["example.com"]}]),
        a_metrics_slice(endpoints=[{"addresses": ["10.0.0.1"]}]),
        a_metrics_slice(endpoints=[{"addresses": ["10.0.0.1"], "targetRef": target}]),
    ):
        assert "its own pods, and nowhere else" in says(wrong)


def api_service(version: str = "v1beta1", group: str = "custom.metrics.k8s.io", service: str = METRICS_API) -> Raw:
    spec: Raw = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100}
    where = {"namespace": RELEASE_NAMESPACE, "name": service, "port": 443}
    body = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{version}.{group}"}}
    return {**body, "spec": {**spec, "insecureSkipTLSVerify": True, "service": where}}


def test_no_api_is_registered_but_the_custom_metrics(cluster: Cluster, account: Client) -> None:
    def says(body: Raw, **query: str) -> str:
        path = f"{API_SERVICES}/{body['metadata']['name']}"
        return account.call("PATCH", path, body, kind=APPLY, fieldManager="x", **query, **DRY).message

    assert says(api_service()) == ""
    assert "cannot patch" in says(api_service("v1", "evil.example.com"))
    assert "cannot patch" in says(api_service("v1beta1", "metrics.k8s.io"))
    assert "lead to its own Service" in says(api_service(service="other"))
    # A creation that names nothing to RBAC is nobody's.
    assert "cannot create" in tried(account, API_SERVICES, api_service()).message


def test_an_api_that_somebody_else_has_taken_meanwhile_stays_theirs(cluster: Cluster, account: Client) -> None:
    """What the operator's `claim` relies on: an apply without force changes nothing that another has said."""
    theirs = cluster.client.create(API_SERVICES, api_service("v1beta2", service="adapter"))
    path = f"{API_SERVICES}/{theirs['metadata']['name']}"
    try:
        assert account.apply(path, api_service("v1beta2"), manager="x").code == 409
    finally:
        cluster.client.delete(path)


def test_an_api_of_somebody_else_is_neither_changed_nor_deleted(cluster: Cluster, account: Client) -> None:
    theirs = cluster.client.create(API_SERVICES, api_service("v1beta2", service="adapter"))
    path = f"{API_SERVICES}/{theirs['metadata']['name']}"
    try:
        # The API server itself writes into its status meanwhile.
        mine = {**api_service("v1beta2"), "metadata": {"name": theirs["metadata"]["name"]}}
        until(
            lambda: (
                "lead to its own Service"
                in account.call("PUT", path, {**mine, "metadata": cluster.client.get(path)["metadata"]}).message
            ),
            "the refusal",
        )
        assert "lead to its own Service" in account.delete(path).message
    finally:
        cluster.client.delete(path)


def test_every_policy_is_bound_and_denies() -> None:
    found = [one for one in yaml.safe_load_all(render("admission-policies.yaml")) if one]
    policies, bindings = ([one for one in found if one["kind"].endswith(end)] for end in ("Policy", "Binding"))

    assert {p["metadata"]["name"] for p in policies} == {b["spec"]["policyName"] for b in bindings}
    assert all(b["spec"]["validationActions"] == ["Deny"] for b in bindings)


def test_the_chart_knows_the_operators_command_and_what_is_reserved() -> None:
    policy = next(one for one in yaml.safe_load_all(render("admission-policies.yaml")) if one["metadata"]["name"].endswith("-pods"))
    command = next(one["expression"] for one in policy["spec"]["variables"] if one["name"] == "triton")
    waits = next(one["expression"] for one in policy["spec"]["variables"] if one["name"] == "placeholder")

    assert json.loads(command) == ["tritonserver", *triton.arguments()]
    assert json.loads(waits) == COMMAND
    assert any(f"e.name.matches('{RESERVED_ENVIRONMENT}')" in v["expression"] for v in policy["spec"]["validations"])
    assert any(f"e.name in ['{CONFIG_VARIABLE}', '{GRANT_VARIABLE}']" in v["expression"] for v in policy["spec"]["validations"])
