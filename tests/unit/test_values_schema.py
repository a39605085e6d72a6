"""What values.schema.json refuses: each wrong value by its name, and what the settings and Kubernetes know nothing of."""

import json
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from dev.values_schema import SCHEMA_FILE, settings_definitions, with_definitions, written_definitions

VALUES = yaml.safe_load((SCHEMA_FILE.parent / "values.yaml").read_text())
VALIDATOR = Draft7Validator(json.loads(SCHEMA_FILE.read_text()))

# A value's path as `--set` has it, what it is set to, and a word that the refusal must have: the name, where that is not the last part.
WRONG: list[tuple[str, Any, str]] = [
    ("replicas", 2, "replicas"),
    ("replicaCount", -1, "replicaCount"),
    ("replicaCount", "2", "replicaCount"),
    ("Image.tag", "1", "Image"),
    ("image.repo", "x", "repo"),
    ("image.tag", "a b", "tag"),
    ("image.digest", "latest", "digest"),
    ("image.pullPolicy", "always", "pullPolicy"),
    ("image.registry", "https://registry.example.com", "registry"),
    ("global.imagePullSecrets", ["pull"], "imagePullSecrets"),
    ("imagePullSecrets", [{"secretName": "pull"}], "secretName"),
    ("worker.imagePullSecrets", [{"nme": "pull"}], "nme"),
    ("worker.securityContext.runAsUser", 0, "runAsUser"),
    ("worker.securityContext.privileged", True, "privileged"),
    ("worker.userNamespace", True, "userNamespace"),
    ("nameOverride", 3, "nameOverride"),
    ("namespaceOverride", "Team_A", "namespaceOverride"),
    ("commonLabels.team", 7, "team"),
    ("podLabels.team", True, "team"),
    ("podAnnotations.note", 1, "note"),
    ("deploymentAnnotations.note", 1, "note"),
    ("podDisruptionBudget.maxUnavailable", "half", "maxUnavailable"),
    ("podDisruptionBudget.minimum", 1, "minimum"),
    ("revisionHistoryLimit", -1, "revisionHistoryLimit"),
    ("strategy.type", "Rolling", "type"),
    ("strategy.rollingUpdate.maxSurges", 1, "maxSurges"),
    ("rbac.aggregate", True, "aggregate"),
    ("serviceAccount.automount", "yes", "automount"),
    ("crds.install", True, "install"),
    ("admissionPolicy.validationActions", ["Nothing"], "validationActions"),
    ("admissionPolicy.forbiddenNamespaces", ["Kube_System"], "forbiddenNamespaces"),
    ("watchNamespaces", ["Team"], "watchNamespaces"),
    ("customMetrics.port", 80, "port"),
    ("customMetrics.certificate", "none", "certificate"),
    ("customMetrics.certManager.issuerRef.nam", "x", "nam"),
    ("mutualTLS.trustDomain", "Cluster Local", "trustDomain"),
    ("kedaScaler.port", 80, "port"),
    ("gateway.image.tag", "a:b", "tag"),
    ("gateway.resources.limit.memory", "1Gi", "limit"),
    ("gateway.tolerations", [{"operator": "Exist"}], "operator"),
    ("gateway.payloads.percent", 0, "percent"),
    ("autoscaling.windowSeconds", 1, "windowSeconds"),
    ("networkPolicy.apiServer.ports", [0], "ports"),
    ("networkPolicy.workers.from", [{"podSelectors": {}}], "podSelectors"),
    ("networkPolicy.workers.from", [{"podSelector": {"matchLabel": {}}}], "matchLabel"),
    ("networkPolicy.operator.egress", [{"ports": [{"portt": 1}]}], "portt"),
    ("metering.port", 0, "port"),
    ("cost.gamma", 1, "gamma"),
    ("accelerators.gpu.watts", 300, "watts"),
    ("accelerators.gpu.limits.memory", "4Gb", "memory"),
    ("logLevel", "LOUD", "logLevel"),
    ("logFormat", "xml", "logFormat"),
    ("resources.limits.memory", "512MB", "memory"),
    ("resources.limit", {}, "limit"),
    ("livenessProbe.period", 1, "period"),
    ("readinessProbe.timeoutSeconds", 0, "timeoutSeconds"),
    ("nodeSelector.disk", True, "disk"),
    ("tolerations", [{"key": "a", "effect": "NoSchedul"}], "effect"),
    ("affinity.podAntiAffinities", {}, "podAntiAffinities"),
    ("topologySpreadConstraints", [{"maxSkew": 1, "topologyKey": "zone"}], "whenUnsatisfiable"),
    ("dnsPolicy", "clusterFirst", "dnsPolicy"),
    ("dnsConfig.nameserver", [], "nameserver"),
    ("podSecurityContext.runAsNonroot", True, "runAsNonroot"),
    ("securityContext.capabilities.dropped", [], "dropped"),
    ("hostUsers", "no", "hostUsers"),
    ("extraEnv", [{"value": "x"}], "name"),
    ("extraEnv", [{"name": "A", "valueFrom": {"secretKey": {}}}], "secretKey"),
    ("extraEnvFrom", [{"secret": {}}], "secret"),
    ("extraVolumes", [{"name": "a", "emptydir": {}}], "emptydir"),
    ("extraVolumeMounts", [{"name": "a", "path": "/a"}], "path"),
    ("initContainers", [{"name": "a", "img": "b"}], "img"),
    ("extraContainers", [{"image": "b"}], "name"),
    ("extraObjects", [1], "extraObjects"),
    ("settings.telemetrySecond", 5, "telemetrySecond"),
    ("settings.telemetrySeconds", "5s", "telemetrySeconds"),
    ("settings.telemetrySeconds", 0, "telemetrySeconds"),
    ("settings.httpPort", 80, "httpPort"),
    ("settings.leaseName", "Lease_1", "leaseName"),
    ("settings.taskKeyName", "", "taskKeyName"),
    ("settings.podTemplate.environments", ["A"], "environments"),
    ("settings.fetch.allowedHosts", "models.example.com", "allowedHosts"),
    ("settings.tracing.ratio", 2, "ratio"),
    ("settings.namespaceLimits.default.maxPriority", 1001, "maxPriority"),
    ("settings.namespaceLimits.overrides.team_a.weight", 2, "team_a"),
    ("settings.modelSignatures", [{"key": {}}], "key"),
    ("settings.mutualTls.port", 1, "port"),
    ("settings.customMetrics.port", 9000, "customMetrics"),
    ("settings.gateway.listenerPort", 9000, "listenerPort"),
    ("settings.logLevel", "INFO", "logLevel"),
]


def refusals(values: dict[str, Any]) -> list[str]:
    """Where each fault is, and what it is."""
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in VALIDATOR.iter_errors(values)]


def with_value(path: str, value: Any) -> dict[str, Any]:
    *above, last = path.split(".")
    made: dict[str, Any] = json.loads(json.dumps(VALUES))
    place = made
    for name in above:
        place = place.setdefault(name, {})
    place[last] = value
    return made


def test_the_values_of_the_chart_are_taken() -> None:
    assert refusals(VALUES) == []


@pytest.mark.parametrize(("path", "value", "name"), WRONG)
def test_a_wrong_value_is_refused_by_its_name(path: str, value: Any, name: str) -> None:
    found = refusals(with_value(path, value))

    assert any(name in one for one in found)


def test_every_value_is_known_to_the_schema_by_its_name() -> None:
    """An object that took any name would take a typo."""
    schema = json.loads(SCHEMA_FILE.read_text())

    assert set(VALUES) == set(schema["properties"])
    assert schema["additionalProperties"] is False


def test_the_schema_of_settings_is_made_from_their_types() -> None:
    text = SCHEMA_FILE.read_text()

    assert text == with_definitions(text, written_definitions(text)), "run `make docs`"


def test_settings_that_have_values_of_their_own_have_one_place() -> None:
    top = settings_definitions()["settings.Settings"]["properties"]

    assert not {"accelerators", "customMetrics", "namespaces", "logLevel"} & set(top)
    assert set(top["gateway"]["properties"]) == {"api"}
    assert {"httpPort", "leaseName", "taskKeyName", "podTemplate", "workerImage"} <= set(top)
