"""The chart as `helm template` renders it: CRDs by flag and kept, least privilege, restricted pods, bad values refused."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dev.tools import bin_folder, ensure
from examples.demo.cluster import ROOT
from inference_operator.accelerators import GPU_PROVIDERS, PROVIDERS
from inference_operator.api import names
from inference_operator.api.crd import files
from inference_operator.payloads import Payloads
from inference_operator.settings import GatewaySettings, GatewayTracing, Metering, Settings, WorkerSecurity
from inference_operator.tenants import Tenant, tenants_fault
from inference_protocol.messages import GRPC_PORT, HEALTH_PORT, HTTP_PORT
from tests.unit.accelerators import CPU, FAULTS

pytestmark = pytest.mark.cluster
CHART = ROOT / "charts" / "inference-operator"


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    ensure("helm")
    command = [str(bin_folder("helm") / "helm"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def render(*settings: str) -> list[dict[str, Any]]:
    flags = [part for setting in settings for part in ("--set", setting)]
    done = helm("template", "release", str(CHART), "-n", "system", *flags)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def kinds(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


def test_the_chart_passes_lint() -> None:
    assert helm("lint", str(CHART), "--strict").returncode == 0


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_another_chart_has_it_as_a_dependency_with_the_usual_condition(tmp_path: Path, enabled: str) -> None:
    """Helm gives the chart its own condition as a value, and the globals of others."""
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    dependency = {"name": "inference-operator", "version": version, "condition": "inference-operator.enabled"}
    parent = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(parent))
    (tmp_path / "values.yaml").write_text(f"global: {{region: eu}}\ninference-operator: {{enabled: {enabled}}}\n")
    shutil.copytree(CHART, tmp_path / "charts" / "inference-operator")

    done = helm("template", "release", str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert ("kind: Deployment" in done.stdout) is (enabled == "true")


def test_what_leaves_nothing_out_is_refused() -> None:
    done = helm("template", "release", str(CHART), "--set", "enabled=false")

    assert done.returncode != 0 and "enabled" in done.stderr


def test_the_crds_are_those_of_the_types_and_are_kept() -> None:
    crds = kinds(render(), "CustomResourceDefinition")

    assert {crd["metadata"]["name"] + ".yaml" for crd in crds} == set(files())
    for crd in crds:
        assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert crd["spec"] == yaml.safe_load(files()[crd["metadata"]["name"] + ".yaml"])["spec"]


def test_the_crds_can_be_left_out_or_not_kept() -> None:
    assert kinds(render("crds.enabled=false"), "CustomResourceDefinition") == []
    assert not any(crd["metadata"].get("annotations") for crd in kinds(render("crds.keep=false"), "CustomResourceDefinition"))


def test_the_crds_may_have_annotations_of_a_users_own_beside_that_which_keeps_them() -> None:
    for crd in kinds(render("crds.annotations.team=a"), "CustomResourceDefinition"):
        assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep", "team": "a"}


EVERYTHING = (
    "gateway.enabled=true",
    "gateway.api.enabled=true",
    "gateway.endpointPicker.enabled=true",
    "kueue.enabled=true",
    "mutualTLS.enabled=true",
    "kedaScaler.enabled=true",
    "networkPolicy.enabled=true",
    "networkPolicy.workers.namespaces={a}",
    "metrics.serviceMonitor.enabled=true",
    "metrics.podMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "grafanaDashboard.enabled=true",
)


def test_everything_has_the_labels_that_helm_recommends_and_no_selector_has_a_version() -> None:
    parts = ("name", "instance", "version", "component", "part-of", "managed-by")
    wanted = {"helm.sh/chart", *(f"app.kubernetes.io/{part}" for part in parts)}

    for one in render(*EVERYTHING):
        assert wanted <= set(one["metadata"]["labels"]), (one["kind"], one["metadata"]["name"])
        selector = one.get("spec", {}).get("selector") or {}
        selected = selector.get("matchLabels", selector) if isinstance(selector, dict) else {}
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(selected), (one["kind"], one["metadata"]["name"])


def test_the_operator_may_run_on_its_nodes_network_with_the_clusters_dns() -> None:
    def pod(*settings: str) -> dict[str, Any]:
        (deployment,) = kinds(render(*settings), "Deployment")
        spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
        return spec

    assert not {"hostNetwork", "dnsPolicy"} & set(pod())
    assert (pod("hostNetwork=true")["hostNetwork"], pod("hostNetwork=true")["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert pod("hostNetwork=true", "dnsPolicy=Default")["dnsPolicy"] == "Default"


def test_images_are_named_by_their_digest_where_one_is_set() -> None:
    digest = f"sha256:{'a' * 64}"
    objects = render(
        f"image.digest={digest}", f"worker.image.digest={digest}", f"gateway.image.digest={digest}", "gateway.enabled=true"
    )
    named = {c["image"] for one in kinds(objects, "Deployment") for c in one["spec"]["template"]["spec"]["containers"]}

    assert named == {f"localhost/inference-operator@{digest}", f"docker.io/envoyproxy/envoy@{digest}"}
    assert images(f"worker.image.digest={digest}") == [f"localhost/inference-worker@{digest}"]


def test_the_notes_lead_from_the_first_job_to_the_next_upgrade() -> None:
    found = notes()

    assert "kubectl apply" in found and "helm test" in found and "/metrics" in found and "docs/tasks/upgrade.md" in found
    assert "crds.keep" in found and "crds.keep" not in notes("crds.keep=false")
    assert "Nothing but RBAC" in notes("admissionPolicy.enabled=false") and "Nothing but RBAC" not in found


def test_the_operators_pod_is_restricted() -> None:
    (deployment,) = kinds(render(), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_no_rule_is_wider_than_it_needs_to_be() -> None:
    rules = [rule for role in kinds(render(), "ClusterRole") for rule in role["rules"]]

    assert not [rule for rule in rules if "*" in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])]
    assert not [rule for rule in rules if {"secrets", "pods/exec", "configmaps"} & set(rule["resources"])]


def policy(name: str, *settings: str) -> dict[str, Any]:
    """The spec of one of the policies on the operator's account."""
    found = kinds(render(*settings), "ValidatingAdmissionPolicy")
    spec: dict[str, Any] = next(one for one in found if one["metadata"]["name"] == f"release-inference-operator-{name}")["spec"]
    return spec


def images(*settings: str) -> list[str]:
    """The images that the policy lets workers have."""
    variables = {v["name"]: v["expression"] for v in policy("pods", *settings)["variables"]}
    found: list[str] = yaml.safe_load(variables["images"])
    return found


def test_the_policy_lets_in_each_image_that_the_settings_name_and_no_other() -> None:
    assert images() == ["localhost/inference-worker:0.1.0"]
    assert set(images("backends.triton.image=triton:1", "backends.torchscript.image=torch:1", "accelerators.gpu.image=cuda:1")) == {
        "localhost/inference-worker:0.1.0",
        "triton:1",
        "torch:1",
        "cuda:1",
    }
    assert images("settings.workerImage=mine:1", "admissionPolicy.images={mirror/*}") == ["mine:1", "mirror/*"]


def test_the_policy_lets_in_the_runtimes_of_classes_beside_those_of_jobs() -> None:
    """A warm worker has no job that could name one."""

    def runtimes(*settings: str) -> list[str]:
        variables = {v["name"]: v["expression"] for v in policy("pods", *settings)["variables"]}
        found: list[str] = yaml.safe_load(variables["runtimeClasses"])
        return found

    given = "accelerators.gpu.runtimeClassName=gpu-runtime"
    assert runtimes() == ["nvidia"] and runtimes(given) == ["nvidia", "gpu-runtime"]
    assert runtimes(given, "settings.podTemplate.runtimeClasses={kata}") == ["kata", "gpu-runtime"]
    assert runtimes("accelerators.gpu.runtimeClassName=nvidia") == ["nvidia"]


def test_the_policy_lets_in_what_classes_add_beside_what_jobs_may(tmp_path: Path) -> None:
    """A class is the administrator's: what its template names need not be in a list."""
    template = {
        "env": [{"name": "APP_A", "valueFrom": {"secretKeyRef": {"name": "of-env", "key": "k"}}}],
        "envFrom": [{"prefix": "TEAM_", "secretRef": {"name": "of-all"}}],
        "volumes": [{"name": "v", "secret": {"secretName": "of-files", "items": [{"key": "k", "path": "k"}]}}],
        "sidecars": [{"name": "agent", "image": "agent:1"}],
        "initContainers": [{"name": "first", "image": "first:1"}],
        "serviceAccountName": "of-class",
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["store"]}],
    }
    lists = {
        "secrets": ["listed"],
        "images": ["tools/*"],
        "serviceAccounts": ["robot"],
        "hostAliases": ["b"],
        "environment": ["A_*"],
    }
    values = {"accelerators": {"gpu": {"template": template}}, "settings": {"podTemplate": lists}}
    rendered = [one for one in yaml.safe_load_all(with_values(tmp_path, values).stdout) if one]
    pods = next(
        one for one in kinds(rendered, "ValidatingAdmissionPolicy") if one["metadata"]["name"] == "release-inference-operator-pods"
    )
    found = {v["name"]: v["expression"] for v in pods["spec"]["variables"]}

    assert set(yaml.safe_load(found["secrets"])) == {"listed", "of-env", "of-all", "of-files"}
    assert set(yaml.safe_load(found["extraImages"])) == {"tools/*", "agent:1", "first:1"}
    assert set(yaml.safe_load(found["accounts"])) == {"default", "robot", "of-class"}
    assert set(yaml.safe_load(found["hosts"])) == {"b", "store"}
    assert set(yaml.safe_load(found["prefixes"])) == {"APP_", "A_", "TEAM_"}


def test_the_example_of_accelerator_classes_can_be_installed() -> None:
    example = ROOT / "examples" / "accelerators-values.yaml"
    done = helm("template", "release", str(CHART), "-n", "system", "-f", str(example))

    assert done.returncode == 0, done.stderr


def test_the_policies_look_at_the_operators_account_alone() -> None:
    found = kinds(render("serviceAccount.name=strong"), "ValidatingAdmissionPolicy")

    firsts = [one["spec"]["matchConditions"][0] for one in found]
    assert {first["expression"] for first in firsts} == {'request.userInfo.username == "system:serviceaccount:system:strong"'}
    assert {one["spec"]["failurePolicy"] for one in found} == {"Fail"}


def test_whoever_names_namespaces_is_told_what_a_job_elsewhere_looks_like() -> None:
    assert "A job in another namespace gets no status at all" in notes("watchNamespaces={a}")
    assert "watches all namespaces" in notes() and "no status" not in notes()


def notes(*settings: str) -> str:
    flags = [part for setting in settings for part in ("--set", setting)]
    return helm("install", "release", str(CHART), "-n", "system", "--dry-run=client", *flags).stdout.partition("NOTES:")[2]


def test_whoever_installs_is_warned_of_a_class_that_has_no_image_or_no_resource() -> None:
    """Its jobs would end with ProviderUnavailable, those of auto too, though another class could run them."""
    unnamed = "accelerators.gpu has no image: unless worker.image has CUDAExecutionProvider, jobs that name it end"
    l4 = (
        "accelerators.gpu.image=cuda:1",
        "accelerators.l4.executionProviders[0].name=TensorrtExecutionProvider",
        "accelerators.l4.executionProviders[1]=CUDAExecutionProvider",
        "accelerators.l4.wattsBusy=72",
    )
    resource, image = "accelerators.l4.resourceName=nvidia.com/gpu", "accelerators.l4.image=trt:1"

    assert unnamed in notes() and "auto that come here do so too" in notes() and "While no node has nvidia.com/gpu" in notes()
    assert "accelerators.cpu" not in notes()
    assert "WARNING" not in notes("accelerators.gpu.executionProviders={CPUExecutionProvider}")
    found = notes(*l4)
    assert "accelerators.l4 has TensorrtExecutionProvider,CUDAExecutionProvider and no resourceName" in found
    assert "unless worker.image has TensorrtExecutionProvider or CUDAExecutionProvider" in found and unnamed not in found
    assert "WARNING" not in notes(*l4, resource, image)


def test_the_cpu_behind_a_device_is_no_cure_of_a_missing_image() -> None:
    found = notes("accelerators.gpu.executionProviders={CUDAExecutionProvider,CPUExecutionProvider}")

    assert "unless worker.image has CUDAExecutionProvider, jobs" in found and "auto that come here compute on CPUs instead" in found


def test_the_notes_know_each_provider_that_needs_a_device() -> None:
    names = sorted(GPU_PROVIDERS)
    classes = [f"accelerators.x{i}.executionProviders={{{name}}}" for i, name in enumerate(names)]
    found = notes(*classes, *(f"accelerators.x{i}.wattsBusy=1" for i in range(len(names))))

    assert [name for name in PROVIDERS if f" has {name} and no resourceName" in found] == [
        p for p in PROVIDERS if p in GPU_PROVIDERS
    ]


def test_the_policies_can_be_left_out_or_tried_without_effect() -> None:
    assert not [one for one in render("admissionPolicy.enabled=false") if one["kind"].startswith("ValidatingAdmissionPolicy")]
    bindings = kinds(render("admissionPolicy.validationActions={Audit,Warn}"), "ValidatingAdmissionPolicyBinding")
    assert {tuple(one["spec"]["validationActions"]) for one in bindings} == {("Audit", "Warn")}


def test_the_operators_namespace_gets_workers_only_where_it_is_watched_by_name() -> None:
    def allows(*settings: str) -> bool:
        return "'system'" not in policy("pods", *settings)["validations"][0]["expression"]

    assert [allows(), allows("watchNamespaces={team}"), allows("watchNamespaces={team,system}")] == [False, False, True]


def test_named_namespaces_have_a_role_each_and_the_cluster_lends_only_nodes_and_volumes() -> None:
    def rights(*settings: str) -> tuple[dict[str, set[str]], list[str]]:
        objects = render("customMetrics.enabled=false", "test.enabled=false", *settings)
        (role,) = (one for one in kinds(objects, "ClusterRole") if one["metadata"]["name"] == "release-inference-operator")
        wide = {name: set(rule["verbs"]) for rule in role["rules"] for name in rule["resources"]}
        roles = [
            one["metadata"]["namespace"] for one in kinds(objects, "Role") if not one["metadata"]["name"].endswith("-election")
        ]
        return wide, roles

    named, pods = "watchNamespaces={a,b}", {"list", "watch"}
    nodes = {"nodes": pods, "persistentvolumes": pods}
    assert rights(named) == (nodes, ["a", "b"])
    assert rights(named, "rbac.readAllPods=true") == ({**nodes, "pods": pods}, ["a", "b"])
    wide, roles = rights()
    assert ({"pods", "services", "inferencejobs/status"} <= set(wide), roles) == (True, [])


def test_the_secrets_are_made_without_data_and_no_rule_lets_the_operator_make_one() -> None:
    objects = render()
    secrets = kinds(objects, "Secret")
    rules = [rule for role in (*kinds(objects, "Role"), *kinds(objects, "ClusterRole")) for rule in role["rules"]]
    of_secrets = [rule for rule in rules if "secrets" in rule["resources"]]
    (config,) = kinds(objects, "ConfigMap")
    settings = msgspec.yaml.decode(config["data"]["config.yaml"], type=Settings)

    assert {one["metadata"]["name"] for one in secrets} == {settings.task_key_name, settings.custom_metrics.secret}
    assert not any(part in one for one in secrets for part in ("data", "stringData", "type"))
    assert sorted(name for rule in of_secrets for name in rule["resourceNames"]) == sorted(s["metadata"]["name"] for s in secrets)
    assert all(set(rule["verbs"]) == {"get", "update"} for rule in of_secrets)


def test_the_key_of_workers_stays_as_long_as_their_jobs() -> None:
    def kept(*settings: str) -> list[str]:
        secrets = kinds(render(*settings), "Secret")
        return [s["metadata"]["name"] for s in secrets if s["metadata"].get("annotations") == {"helm.sh/resource-policy": "keep"}]

    assert kept() == ["release-inference-operator-task-key"]
    assert kept("crds.keep=false") == []


def test_where_somebody_else_issues_the_certificate_its_secret_is_not_the_charts() -> None:
    assert len(kinds(render("customMetrics.certificate=certManager"), "Secret")) == 1
    assert len(kinds(render("customMetrics.enabled=false"), "Secret")) == 1


def test_a_second_operator_stands_by_elsewhere_and_a_drain_leaves_one() -> None:
    objects = render()
    (deployment,) = kinds(objects, "Deployment")
    (budget,) = kinds(objects, "PodDisruptionBudget")
    pod = deployment["spec"]["template"]["spec"]
    (preferred,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]

    assert deployment["spec"]["replicas"] == 2 and budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == deployment["spec"]["selector"] == preferred["podAffinityTerm"]["labelSelector"]
    assert preferred["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert {(one["topologyKey"], one["whenUnsatisfiable"]) for one in pod["topologySpreadConstraints"]} == {
        ("kubernetes.io/hostname", "ScheduleAnyway"),
        ("topology.kubernetes.io/zone", "ScheduleAnyway"),
    }


def test_the_placing_of_the_operator_can_be_the_users() -> None:
    objects = render(
        "replicaCount=1",
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key=x",
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].operator=Exists",
        "tolerations[0].key=control-plane",
        "topologySpreadConstraints[0].topologyKey=rack",
        "topologySpreadConstraints[0].maxSkew=1",
        "topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
    )
    (deployment,) = kinds(objects, "Deployment")
    pod = deployment["spec"]["template"]["spec"]

    assert kinds(objects, "PodDisruptionBudget") == []
    assert list(pod["affinity"]) == ["nodeAffinity"]
    assert pod["topologySpreadConstraints"] == [{"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    assert pod["tolerations"] == [{"key": "control-plane"}]


def test_custom_metrics_are_served_behind_a_service_of_their_own() -> None:
    objects = render()
    (service,) = kinds(objects, "Service")
    (deployment,) = kinds(objects, "Deployment")
    (config,) = kinds(objects, "ConfigMap")
    settings = yaml.safe_load(config["data"]["config.yaml"])["customMetrics"]
    ports = {port["name"]: port["containerPort"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}

    assert service["spec"]["ports"][0] | {"appProtocol": ""} == {
        "name": "custom-metrics",
        "port": 443,
        "targetPort": settings["port"],
        "appProtocol": "",
    }
    # The replica that leads says where it leads.
    assert "selector" not in service["spec"]
    assert ports["custom-metrics"] == settings["port"]
    assert settings["service"] == service["metadata"]["name"]
    assert settings["issue"] is True
    assert settings["owner"] in [role["metadata"]["name"] for role in kinds(objects, "ClusterRole")]
    # Helm would refuse to install beside another provider's; the operator looks first.
    assert kinds(objects, "APIService") == []


def test_custom_metrics_can_be_left_out_with_all_their_rights() -> None:
    objects = render("customMetrics.enabled=false")
    groups = {group for role in kinds(objects, "ClusterRole") for rule in role["rules"] for group in rule["apiGroups"]}

    assert kinds(objects, "Service") == []
    assert not groups & {"apiregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io"}
    assert not [one for one in objects if one["metadata"].get("namespace") == "kube-system"]


def test_the_scaler_for_keda_is_off_unless_asked_for() -> None:
    def scaler(*settings: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        objects = render(*settings)
        (deployment,) = kinds(objects, "Deployment")
        ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
        services = [one for one in kinds(objects, "Service") if one["metadata"]["name"].endswith("-keda-scaler")]
        return services, [port for port in ports if port["name"] == "keda-scaler"]

    assert scaler() == ([], [])
    (service,), ports = scaler("kedaScaler.enabled=true", "kedaScaler.port=7000")
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(6000, "keda-scaler")]
    assert ports == [{"name": "keda-scaler", "containerPort": 7000}]


def test_the_gateway_is_off_unless_asked_for() -> None:
    assert len(kinds(render(), "Deployment")) == 1
    assert [one["metadata"]["name"] for one in kinds(render(), "PodDisruptionBudget")] == ["release-inference-operator"]


def test_the_gateways_pods_are_restricted_spread_and_know_no_account() -> None:
    objects = render("gateway.enabled=true", "gateway.port=9000")
    gateway = next(one for one in kinds(objects, "Deployment") if one["metadata"]["name"].endswith("-gateway"))
    budget = next(one for one in kinds(objects, "PodDisruptionBudget") if one["metadata"]["name"].endswith("-gateway"))
    pod = gateway["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert gateway["spec"]["replicas"] == 2 and budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == gateway["spec"]["selector"]
    assert pod["automountServiceAccountToken"] is False and "serviceAccountName" not in pod
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {one["topologyKey"] for one in pod["topologySpreadConstraints"]} == {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    }
    assert container["ports"] == [{"name": "callers", "containerPort": 9000}, {"name": "metrics", "containerPort": 9902}]


def test_the_gateways_envoys_ask_the_operator_where_it_listens_and_it_tells_them_where_to() -> None:
    objects = render("gateway.enabled=true", "gateway.controlPort=7001", "gateway.port=9000", "gateway.requestBytes=134217728")
    maps = {one["metadata"]["name"]: one["data"] for one in kinds(objects, "ConfigMap")}
    bootstrap = yaml.safe_load(maps["release-inference-operator-gateway"]["envoy.yaml"])
    settings = msgspec.convert(yaml.safe_load(maps["release-inference-operator"]["config.yaml"]), Settings, strict=False)
    (cluster,) = (one for one in bootstrap["static_resources"]["clusters"] if one["name"] == "operator")
    endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    service = next(one for one in kinds(objects, "Service") if one["metadata"]["name"].endswith("-control"))

    assert endpoint == {"address": f"{service['metadata']['name']}.system.svc", "port_value": 7001}
    assert [port["port"] for port in service["spec"]["ports"]] == [7001]
    # Envoy's administration could end it: nobody outside of the pod reaches it.
    assert bootstrap["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"
    assert settings.gateway == GatewaySettings(enabled=True, port=7001, listener_port=9000, request_bytes=134_217_728, envoys=2)


def test_the_gateways_envoys_show_metrics_and_no_more_of_their_administration_and_send_traces_where_the_values_say() -> None:
    collector = "http://collector.monitoring:4318"
    objects = render("gateway.enabled=true", "gateway.metricsPort=9111", f"gateway.tracing.endpoint={collector}")
    maps = {one["metadata"]["name"]: one["data"] for one in kinds(objects, "ConfigMap")}
    bootstrap = yaml.safe_load(maps["release-inference-operator-gateway"]["envoy.yaml"])
    settings = msgspec.convert(yaml.safe_load(maps["release-inference-operator"]["config.yaml"]), Settings, strict=False)
    (listener,) = bootstrap["static_resources"]["listeners"]
    (host,) = listener["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]

    assert listener["address"]["socket_address"] == {"address": "0.0.0.0", "port_value": 9111}
    assert [(route["match"]["path"], route["route"]["prefix_rewrite"]) for route in host["routes"]] == [
        ("/metrics", "/stats/prometheus")
    ]
    assert settings.gateway.tracing == GatewayTracing(collector)


def test_the_gateway_serves_tls_from_a_secret_that_the_operator_never_reads() -> None:
    objects = render("gateway.enabled=true", "gateway.tls.secretName=callers")
    gateway = next(one for one in kinds(objects, "Deployment") if one["metadata"]["name"].endswith("-gateway"))
    service = next(one for one in kinds(objects, "Service") if one["metadata"]["name"].endswith("-gateway"))
    maps = {one["metadata"]["name"]: one["data"] for one in kinds(objects, "ConfigMap")}
    settings = msgspec.convert(yaml.safe_load(maps["release-inference-operator"]["config.yaml"]), Settings, strict=False)
    pod = gateway["spec"]["template"]["spec"]
    (volume,) = [one for one in pod["volumes"] if "secret" in one]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]

    assert volume["secret"]["secretName"] == "callers" and mount["mountPath"] == settings.gateway.tls_folder
    assert [(port["name"], port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [("https", 443, "callers")]
    operator = next(one for one in kinds(objects, "Deployment") if not one["metadata"]["name"].endswith("-gateway"))
    assert "callers" not in str(operator["spec"]["template"]["spec"].get("volumes"))


def test_keys_of_tenants_are_mounted_by_the_envoys_alone() -> None:
    objects = render(
        "gateway.enabled=true",
        "gateway.replicas=3",
        "gateway.audit=true",
        "gateway.tls.secretName=callers",
        "gateway.tenants.enabled=true",
        "gateway.tenants.certificates.caSecretName=authority",
        "gateway.tenants.keys.secretName=secret-keys",
        "gateway.tenants.tokens.issuer=https://issuer",
        "gateway.tenants.tokens.audiences={gateway}",
        "gateway.tenants.tokens.keySetConfigMap=issuer-keys",
        "gateway.tenants.list[0].name=a",
        "gateway.tenants.list[0].namespaces={team-a-*}",
        "gateway.tenants.list[0].requestsPerSecond=100",
    )
    deployments = {
        one["metadata"]["name"].endswith("-gateway"): one["spec"]["template"]["spec"] for one in kinds(objects, "Deployment")
    }
    maps = {one["metadata"]["name"]: one["data"] for one in kinds(objects, "ConfigMap")}
    settings = msgspec.convert(yaml.safe_load(maps["release-inference-operator"]["config.yaml"]), Settings, strict=False).gateway
    mounts = {
        of_envoys: {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        for of_envoys, pod in deployments.items()
    }

    assert settings.tenants.key_file == f"{mounts[True]['keys']}/keys"
    assert settings.tenants.certificate_folder == mounts[True]["callers"]
    assert settings.tenants.tokens.key_set_file == f"{mounts[False]['issuer']}/jwks.json"
    assert settings.envoys == 3 and settings.audit
    assert settings.tenants.list == (Tenant("a", namespaces=("team-a-*",), requests_per_second=100),)
    assert "secret-keys" in str(deployments[True]) and "secret-keys" not in str(deployments[False])
    assert tenants_fault(settings.tenants, tls=bool(settings.tls_folder)) is None


def test_copies_of_payloads_leave_the_gateway_only_to_who_gets_them() -> None:
    peer = "networkPolicy.payloads.to[0].namespaceSelector.matchLabels.name=events"
    given = (
        "gateway.enabled=true",
        "gateway.payloads.url=http://events.events:8080/in",
        "networkPolicy.payloads.ports={8080}",
        peer,
    )
    gateway = policies("watchNamespaces={a}", *given)["system", "release-inference-operator-gateway"]
    maps = {one["metadata"]["name"]: one["data"] for one in kinds(render(*given), "ConfigMap")}
    settings = msgspec.convert(yaml.safe_load(maps["release-inference-operator"]["config.yaml"]), Settings, strict=False).gateway

    rules = [rule for rule in gateway["egress"] if {"port": 8080} in rule["ports"]]
    assert rules == [{"ports": [{"port": 8080}], "to": [{"namespaceSelector": {"matchLabels": {"name": "events"}}}]}]
    assert settings.payloads == Payloads("http://events.events:8080/in")


def rights(*values: str, of: tuple[str, ...] = ("ClusterRole", "Role")) -> set[tuple[str, str]]:
    """The resources and verbs of all roles of these kinds."""
    rules = [rule for kind in of for role in kinds(render(*values), kind) for rule in role.get("rules") or ()]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def test_queues_of_kueue_are_off_and_their_rights_are_given_where_they_are_on() -> None:
    on, named = "kueue.enabled=true", "watchNamespaces={a}"
    of_workloads = {("workloads", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")}
    of_workloads |= {("workloads/status", "patch")}
    read = {(resource, verb) for resource in ("resourceflavors", "priorityclasses") for verb in ("list", "watch")}

    assert rights(on) - rights() == of_workloads | read
    # What has no namespace is read all the same; Workloads only where jobs are.
    assert rights(on, named, of=("ClusterRole",)) - rights(named, of=("ClusterRole",)) == read
    assert rights(on, named, of=("Role",)) - rights(named, of=("Role",)) == of_workloads
    bound = [one["spec"]["policyName"] for one in kinds(render(on), "ValidatingAdmissionPolicyBinding")]
    assert "release-inference-operator-workloads" in bound
    assert "release-inference-operator-workloads" not in [
        one["spec"]["policyName"] for one in kinds(render(), "ValidatingAdmissionPolicyBinding")
    ]


def test_routes_for_gateways_of_others_are_off_and_their_rights_are_given_where_they_are_on() -> None:
    api, picker = "gateway.api.enabled=true", "gateway.endpointPicker.enabled=true"
    verbs = ("get", "list", "create", "patch", "delete")
    of_routes = {(resource, verb) for resource in ("httproutes", "grpcroutes") for verb in verbs}
    of_pools = {("inferencepools", verb) for verb in verbs}

    assert rights(api) - rights() == of_routes
    assert rights(api, picker) - rights() == of_routes | of_pools
    # Without routes nobody makes pools: the picker alone needs no right.
    assert rights(picker) == rights()


def test_the_endpoint_picker_has_a_service_and_a_port_where_it_is_on() -> None:
    def picker(*values: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        objects = render(*values)
        services = [one for one in kinds(objects, "Service") if one["metadata"]["name"].endswith("-endpoint-picker")]
        (deployment,) = kinds(objects, "Deployment")
        ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
        return services, [port for port in ports if port["name"] == "endpoint-picker"]

    assert picker() == ([], [])
    (service,), ports = picker("gateway.endpointPicker.enabled=true", "gateway.endpointPicker.port=7000")
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(7000, "endpoint-picker")]
    assert ports == [{"name": "endpoint-picker", "containerPort": 7000}]
    found = policies("gateway.endpointPicker.enabled=true")["system", "release-inference-operator"]
    assert 9002 in [port["port"] for rule in found["ingress"] for port in rule["ports"]]


def test_network_policies_let_the_gateway_to_workers_and_the_operator_and_no_further() -> None:
    found = policies("watchNamespaces={a}", "gateway.enabled=true")
    gateway, worker = found["system", "release-inference-operator-gateway"], found["a", "release-inference-operator-workers"]
    operator = found["system", "release-inference-operator"]

    assert gateway["podSelector"] in [peer.get("podSelector") for rule in worker["ingress"] for peer in rule["from"]]
    assert gateway["podSelector"] in [peer.get("podSelector") for rule in operator["ingress"] for peer in rule.get("from", [])]
    assert [port["port"] for rule in gateway["egress"] for port in rule["ports"]] == [53, 53, 18000, HTTP_PORT, GRPC_PORT]
    assert [rule["from"] for rule in gateway["ingress"] if {"port": 9902} in rule["ports"]] == [
        [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    ]


def test_cert_manager_may_issue_the_certificate() -> None:
    objects = render("customMetrics.certificate=certManager")
    (certificate,) = kinds(objects, "Certificate")
    (service,) = kinds(objects, "Service")
    secrets = [
        rule
        for role in kinds(objects, "Role")
        for rule in role["rules"]
        if certificate["spec"]["secretName"] in rule.get("resourceNames", [])
    ]

    assert certificate["spec"]["dnsNames"] == [f"{service['metadata']['name']}.system.svc"]
    assert [i["metadata"]["name"] for i in kinds(objects, "Issuer")] == [certificate["spec"]["issuerRef"]["name"]]
    assert [rule["verbs"] for rule in secrets] == [["get"]]
    assert kinds(render("customMetrics.certificate=certManager", "customMetrics.certManager.issuerRef.name=x"), "Issuer") == []


def test_the_binding_in_kube_system_can_be_left_to_the_cluster() -> None:
    def in_kube_system(*settings: str) -> list[str]:
        return [one["kind"] for one in render(*settings) if one["metadata"].get("namespace") == "kube-system"]

    assert in_kube_system() == ["RoleBinding"]
    assert in_kube_system("customMetrics.authReaderBinding=false") == []


def metering(*settings: str) -> Metering:
    (config,) = kinds(render(*settings), "ConfigMap")
    return msgspec.yaml.decode(config["data"]["config.yaml"], type=Settings).metering


def test_meters_are_looked_for_as_the_operator_would_by_itself() -> None:
    assert metering() == Metering()


def test_meters_can_be_named_or_left_alone() -> None:
    assert not metering("metering.enabled=false").enabled
    assert metering("metering.podLabels.app=null", "metering.podLabels.exporter=mine").pod_labels == {
        "app.kubernetes.io/name": "dcgm-exporter",
        "exporter": "mine",
    }
    assert metering("metering.namespaces={gpu-operator}").namespaces == ("gpu-operator",)


def test_a_learned_policy_is_mounted_only_where_there_is_one() -> None:
    def of_policy(*settings: str) -> tuple[str, list[Any], list[Any]]:
        objects = render(*settings)
        (config,), (deployment,) = kinds(objects, "ConfigMap"), kinds(objects, "Deployment")
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        mounts, volumes = (
            [one for one in where if one["name"] == "policy"] for where in (container["volumeMounts"], pod["volumes"])
        )
        return yaml.safe_load(config["data"]["config.yaml"])["policy"]["path"], mounts, volumes

    assert of_policy() == ("", [], [])
    path, (mount,), (volume,) = of_policy("policy.configMap=learned")
    assert path == f"{mount['mountPath']}/policy.onnx"
    assert volume["configMap"] == {"name": "learned", "optional": True}


def policies(*settings: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The NetworkPolicies by namespace and name."""
    found = kinds(render("networkPolicy.enabled=true", *settings), "NetworkPolicy")
    return {(one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"] for one in found}


def test_network_policies_are_made_where_the_chart_is_told_to() -> None:
    """The operator makes none: the right to write them in every namespace would undo those of everybody."""
    ours, workers = "release-inference-operator", "release-inference-operator-workers"
    rules = [rule for role in (*kinds(render(), "ClusterRole"), *kinds(render(), "Role")) for rule in role["rules"]]

    assert kinds(render("watchNamespaces={a}"), "NetworkPolicy") == []
    assert set(policies()) == {("system", ours)}
    assert set(policies("watchNamespaces={a,b}")) == {("system", ours), ("a", workers), ("b", workers)}
    assert set(policies("watchNamespaces={a,b}", "networkPolicy.workers.namespaces={b}")) == {("system", ours), ("b", workers)}
    assert not [rule for rule in rules if "networkpolicies" in rule["resources"]]


def test_network_policies_know_workers_and_operator_as_they_are() -> None:
    """By labels that no job can set, and by the ports that they listen on."""
    found = policies("watchNamespaces={a}", "kedaScaler.enabled=true")
    operator, worker = found["system", "release-inference-operator"], found["a", "release-inference-operator-workers"]
    (deployment,) = kinds(render("kedaScaler.enabled=true"), "Deployment")
    ports = {port["containerPort"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    ours = {names.LABEL_NAME: names.WORKER_NAME, names.LABEL_MANAGED_BY: names.MANAGED_BY}
    to_operators, to_workers = [rule for rule in operator["egress"] if "podSelector" in rule.get("to", [{}])[0]][:2]
    from_operators = operator["ingress"][0]

    assert worker["podSelector"] == {"matchLabels": ours}
    assert to_workers["to"][0]["podSelector"] == {"matchLabels": ours}
    # A standby is connected to the leader.
    assert to_operators["to"] == from_operators["from"] == [{"podSelector": operator["podSelector"]}]
    assert to_operators["ports"] == from_operators["ports"] == [{"port": 8080}]
    assert operator["podSelector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert {port["port"] for rule in operator["ingress"] for port in rule["ports"]} == ports
    assert {port["port"] for rule in worker["ingress"] for port in rule["ports"]} == {HTTP_PORT, GRPC_PORT, HEALTH_PORT}
    assert [port["port"] for port in to_workers["ports"]] == [HTTP_PORT, HEALTH_PORT]


def test_network_policies_let_nobody_in_by_a_list_that_is_empty() -> None:
    """A rule without sources would let everybody in."""
    empty = ("prometheus.from", "keda.from", "workers.from", "dns.to")
    found = policies("watchNamespaces={a}", "kedaScaler.enabled=true", *(f"networkPolicy.{name}=null" for name in empty))
    operator, worker = found["system", "release-inference-operator"], found["a", "release-inference-operator-workers"]

    assert [port["port"] for rule in operator["ingress"] for port in rule["ports"]] == [8080, 8443]
    assert operator["ingress"][0]["from"] == [{"podSelector": operator["podSelector"]}]
    assert [rule["from"] for rule in worker["ingress"]] == [
        [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "system"}},
                "podSelector": operator["podSelector"],
            }
        ]
    ]
    assert not worker["egress"]


def security(*settings: str) -> WorkerSecurity:
    (config,) = kinds(render(*settings), "ConfigMap")
    return msgspec.yaml.decode(config["data"]["config.yaml"], type=Settings).worker_security


def test_workers_run_as_whom_the_chart_names_or_leaves_out() -> None:
    """Helm drops values that are null, and group 0 is one."""
    assert security() == WorkerSecurity()
    assert security("worker.securityContext=null") == WorkerSecurity(run_as_user=None, run_as_group=None, fs_group=None)
    assert security("worker.securityContext.runAsUser=null") == WorkerSecurity(run_as_user=None)
    assert security("worker.securityContext.runAsGroup=0").run_as_group == 0
    assert security("worker.userNamespaces=true").user_namespaces


def test_the_operators_ids_can_be_left_to_the_cluster() -> None:
    def pod(*settings: str) -> dict[str, Any]:
        (deployment,) = kinds(render(*settings), "Deployment")
        spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
        return spec

    left_out = pod("podSecurityContext.runAsUser=null", "podSecurityContext.runAsGroup=null", "hostUsers=false")
    assert left_out["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert left_out["hostUsers"] is False
    assert "hostUsers" not in pod()
    assert "securityContext" not in pod("podSecurityContext=null")


def test_limits_of_namespaces_reach_the_operator_as_written() -> None:
    (config,) = kinds(render("settings.namespaceLimits.overrides.research.maxDevices.gpu=4"), "ConfigMap")

    written = msgspec.convert(yaml.safe_load(config["data"]["config.yaml"]), Settings)
    assert written.namespace_limits.of("research").max_devices == {"gpu": 4}


def test_changed_settings_make_new_pods() -> None:
    def checksum(*settings: str) -> str:
        (deployment,) = kinds(render(*settings), "Deployment")
        found: str = deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        return found

    assert checksum() == checksum()
    assert checksum() != checksum("cost.alpha=1")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("replicaCount=-1", "replicaCount"),
        ("logLevel=LOUD", "logLevel"),
        ("image.digest=latest", "digest"),
        ("nonsense=1", "nonsense"),
        ("nodeCache.sizeLimit=5G", "sizeLimit"),
        ("nodeCache.sharing=All", "sharing"),
        ("nodeCache.volume.nfs.path=/x", "nfs"),
        ("nodeCache.prefetching=true", "prefetching"),
        ("customMetrics.certificate=none", "certificate"),
        ("customMetrics.port=80", "port"),
        ("autoscaling.windowSeconds=1", "windowSeconds"),
        ("metering.port=0", "port"),
        ("kedaScaler.port=80", "port"),
        ("worker.securityContext.runAsUser=0", "runAsUser"),
        ("worker.securityContext.privileged=true", "privileged"),
        ("networkPolicy.workers.from[0].everybody=true", "everybody"),
        ("watchNamespaces={Team}", "watchNamespaces"),
        ("admissionPolicy.validationActions={Nothing}", "validationActions"),
        ("settings.namespaceLimits.default.maxPriority=1001", "maxPriority"),
        ("accelerators.gpu.executionProviders={TensorRTExecutionProvider}", "executionProviders"),
        ("accelerators.gpu.executionProviders[0].name=TensorRTExecutionProvider", "executionProviders"),
        ("accelerators.gpu.executionProviders={TensorrtExecutionProvider,NvTensorRTRTXExecutionProvider}", "executionProviders"),
        ("accelerators.gpu.resourceCount=2", "resourceCount"),
        ("accelerators.gpu.deviceMemory=8Gb", "deviceMemory"),
        ("accelerators.gpu.limits.memory=8Gb", "memory"),
        ("accelerators.gpu.tolerations[0].operator=In,accelerators.gpu.tolerations[0].key=x", "operator"),
        ("accelerators.gpu.wattsBusy=null", "wattsBusy"),
        ("accelerators.gpu.wattsBusy=0", "wattsBusy"),
        ("accelerators.gpu.runtimeClassName=NVIDIA", "runtimeClassName"),
        ("settings.namespaceLimits.default.maxGpus=1", "maxGpus"),
        ("settings.namespaceLimits.default.weight=0", "weight"),
        ("settings.namespaceLimits.overrides.team_a.weight=2", "team_a"),
    ],
)
def test_a_bad_value_is_refused_by_name(setting: str, says: str) -> None:
    done = helm("template", "release", str(CHART), "--set", setting)

    assert done.returncode != 0
    assert says in done.stderr


def with_values(folder: Path, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return helm("template", "release", str(CHART), "-f", str(file))


@pytest.mark.parametrize("fault", FAULTS)
def test_helm_refuses_each_class_that_would_stop_the_operator_and_names_it(tmp_path: Path, fault: str) -> None:
    """Some had passed, and the new operator ended again and again while the old went on with the old classes."""
    given, _ = FAULTS[fault]
    done = with_values(tmp_path, {"accelerators": {"x": given}})

    assert done.returncode != 0
    assert "accelerators.x" in done.stderr or "'/accelerators/x" in done.stderr or "unsupported value: +Inf" in done.stderr


@pytest.mark.parametrize("name", ["A100", "mig_1g", "gpu.shared", "l4-", "auto", "a" * 64])
def test_helm_names_a_class_whose_name_is_none(tmp_path: Path, name: str) -> None:
    """`at '': invalid propertyName` had said neither which class nor what was wrong with it."""
    done = with_values(tmp_path, {"accelerators": {name: CPU}})

    assert done.returncode != 0
    assert f"accelerators.{name}: " in done.stderr


@pytest.mark.parametrize("fault", ["watts of nothing", "both TensorRTs", "a provider twice", "requests above the limits"])
def test_helm_says_in_the_operators_words_what_a_schema_can_not(tmp_path: Path, fault: str) -> None:
    given, words = FAULTS[fault]

    assert words in with_values(tmp_path, {"accelerators": {"x": given}}).stderr


def test_helm_refuses_a_cap_on_a_class_that_is_not_there(tmp_path: Path) -> None:
    """Who removed gpu, and had capped it, got an operator that did not start."""
    limits = {"overrides": {"team": {"maxDevices": {"h100": 1}}}}
    done = with_values(tmp_path, {"settings": {"namespaceLimits": limits}})

    assert "namespaceLimits.overrides.team.maxDevices.h100: there is no accelerator class 'h100'" in done.stderr


@pytest.mark.parametrize("amount", ["1Gi", "1073741824", "1.1e9", "+2G", "1024Mi", "1.5Gi", ".5Ti", "1Ei"])
def test_helm_takes_each_way_to_write_enough_memory(tmp_path: Path, amount: str) -> None:
    given = {**CPU, "requests": {"memory": "1G", "cpu": ".5"}, "limits": {"memory": amount, "cpu": "500m"}}

    assert with_values(tmp_path, {"accelerators": {"x": given}}).returncode == 0


def test_mutual_tls_is_off_unless_asked_for_and_brings_its_rights_along() -> None:
    assert not [one for one in render() if one["metadata"]["name"].endswith("-authority")]

    objects = render("mutualTLS.enabled=true", "customMetrics.enabled=false")
    (service,) = kinds(objects, "Service")
    (config,) = kinds(objects, "ConfigMap")
    told = yaml.safe_load(config["data"]["config.yaml"])["mutualTls"]
    rules = [rule for kind in ("Role", "ClusterRole") for role in kinds(objects, kind) for rule in role["rules"]]

    assert service["metadata"]["name"] == told["service"] == told["secret"]
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(told["port"], "authority")]
    # Made empty, and kept: an upgrade must not take the keys away, nor an uninstall while workers run.
    (secret,) = [one for one in kinds(objects, "Secret") if one["metadata"]["name"] == told["secret"]]
    assert "data" not in secret
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]} in rules
    assert {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [told["secret"]], "verbs": ["get", "update"]} in rules


def test_the_scaler_for_keda_speaks_tls_where_it_is_told_to() -> None:
    asked = ("mutualTLS.enabled=true", "kedaScaler.enabled=true", "kedaScaler.tls=true", "kedaScaler.clientCASecret=keda")
    objects = render(*asked)
    (deployment,) = kinds(objects, "Deployment")
    (config,) = kinds(objects, "ConfigMap")
    told = yaml.safe_load(config["data"]["config.yaml"])["kedaScaler"]
    pod = deployment["spec"]["template"]["spec"]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "keda-client-ca"]

    assert told["clientCaFile"] == f"{mount['mountPath']}/ca.crt"
    assert "keda" in [volume.get("secret", {}).get("secretName") for volume in pod["volumes"]]
