"""The chart as `helm template` renders it: CRDs by flag and kept, least privilege, restricted pods, bad values refused."""

import subprocess
from typing import Any

import msgspec
import pytest
import yaml

from dev.tools import bin_folder, ensure
from examples.demo.cluster import ROOT
from inference_operator.api.crd import files
from inference_operator.settings import Metering, Settings

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


def test_the_crds_are_those_of_the_types_and_are_kept() -> None:
    crds = kinds(render(), "CustomResourceDefinition")

    assert {crd["metadata"]["name"] + ".yaml" for crd in crds} == set(files())
    for crd in crds:
        assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert crd["spec"] == yaml.safe_load(files()[crd["metadata"]["name"] + ".yaml"])["spec"]


def test_the_crds_can_be_left_out_or_not_kept() -> None:
    assert kinds(render("crds.enabled=false"), "CustomResourceDefinition") == []
    assert not any(crd["metadata"].get("annotations") for crd in kinds(render("crds.keep=false"), "CustomResourceDefinition"))


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
    rules = [rule for role in kinds(render("rbac.aggregate=false"), "ClusterRole") for rule in role["rules"]]

    assert not [rule for rule in rules if "*" in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])]
    assert not [rule for rule in rules if {"secrets", "pods/exec", "configmaps"} & set(rule["resources"])]


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
        "targetPort": "custom-metrics",
        "appProtocol": "",
    }
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert ports["custom-metrics"] == settings["port"]
    assert settings["service"] == settings["secret"] == service["metadata"]["name"]
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


def test_cert_manager_may_issue_the_certificate() -> None:
    objects = render("customMetrics.certificate=certManager")
    (certificate,) = kinds(objects, "Certificate")
    (service,) = kinds(objects, "Service")
    secrets = [
        rule
        for role in kinds(objects, "Role")
        for rule in role["rules"]
        if service["metadata"]["name"] in rule.get("resourceNames", [])
    ]

    assert certificate["spec"]["secretName"] == service["metadata"]["name"]
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
        ("customMetrics.certificate=none", "certificate"),
        ("customMetrics.port=80", "port"),
        ("autoscaling.windowSeconds=1", "windowSeconds"),
        ("metering.port=0", "port"),
        ("kedaScaler.port=80", "port"),
    ],
)
def test_a_bad_value_is_refused_by_name(setting: str, says: str) -> None:
    done = helm("template", "release", str(CHART), "--set", setting)

    assert done.returncode != 0
    assert says in done.stderr


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
    (secret,) = kinds(objects, "Secret")
    assert secret["metadata"]["name"] == told["secret"]
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
