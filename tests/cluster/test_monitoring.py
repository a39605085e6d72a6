"""What the chart gives Prometheus and Grafana: monitors, alerts that promtool tests, and dashboards."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dev.packages import ensure_packages
from dev.tools import share
from examples.demo.cluster import ROOT
from tests.cluster.conftest import make_namespace
from tests.cluster.test_chart import CHART, helm, kinds, render

if TYPE_CHECKING:
    from tests.cluster.conftest import Cluster

pytestmark = pytest.mark.cluster
RUNBOOKS = (ROOT / "docs" / "tasks" / "monitor.md").read_text()


def promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    ensure_packages(("prometheus",))
    return subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False)


def rules(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    (found,) = kinds(objects, "PrometheusRule")
    return [rule for group in found["spec"]["groups"] for rule in group["rules"]]


def names_of(*settings: str) -> list[str]:
    return [rule["alert"] for rule in rules(render("prometheusRule.enabled=true", *settings))]


@pytest.fixture(scope="module")
def alerts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the alerts, as a Prometheus without the Prometheus operator gets them."""
    folder = tmp_path_factory.mktemp("alerts")
    (found,) = [
        one
        for one in kinds(render("prometheusRule.enabled=true", "prometheusRule.kind=ConfigMap"), "ConfigMap")
        if one["metadata"]["name"].endswith("-alerts")
    ]
    (folder / "alerts.yaml").write_text(found["data"]["alerts.yaml"])
    shutil.copy(Path(__file__).parent / "alerts_test.yaml", folder)
    return folder


def test_nothing_is_there_unless_it_is_asked_for() -> None:
    objects = render()

    assert [kinds(objects, kind) for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule")] == [[], [], []]
    assert not any("alerts" in one["metadata"]["name"] or "dashboard" in one["metadata"]["name"] for one in objects)


def test_the_alerts_are_rules_that_prometheus_takes(alerts: Path) -> None:
    done = promtool("check", "rules", "alerts.yaml", folder=alerts)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_for_its_cause_and_not_before(alerts: Path) -> None:
    done = promtool("test", "rules", "alerts_test.yaml", folder=alerts)

    assert done.returncode == 0, done.stdout + done.stderr
    tests = yaml.safe_load((alerts / "alerts_test.yaml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == set(names_of())


def test_each_alert_has_a_severity_words_and_a_runbook() -> None:
    for rule in rules(render("prometheusRule.enabled=true")):
        page, anchor = rule["annotations"]["runbook_url"].split("#")

        assert page == "docs/tasks/monitor.md" and f"### {rule['alert']}\n" in RUNBOOKS
        assert anchor == rule["alert"].lower()
        assert rule["labels"]["severity"] in ("warning", "critical") and rule["annotations"].keys() >= {"summary", "description"}


def test_alerts_can_be_left_out_added_and_bent() -> None:
    added = ("prometheusRule.rules[0].alert=Mine", "prometheusRule.rules[0].expr=up == 0")
    found = rules(render("prometheusRule.enabled=true", "prometheusRule.latencyMilliseconds=150", *added))

    assert "InferenceNoCapacity" not in names_of("prometheusRule.disabled={InferenceNoCapacity}")
    assert found[-1] == {"alert": "Mine", "expr": "up == 0"}
    assert found[0]["alert"] == "HighInferenceLatency" and found[0]["expr"].endswith("> 0.15")


def test_every_alert_can_be_named_as_disabled() -> None:
    assert names_of(f"prometheusRule.disabled={{{','.join(names_of()[1:])}}}") == names_of()[:1]


def test_monitors_have_what_users_set() -> None:
    for kind, value, endpoints in (
        ("ServiceMonitor", "serviceMonitor", "endpoints"),
        ("PodMonitor", "podMonitor", "podMetricsEndpoints"),
    ):
        root = f"metrics.{value}"
        sets = ("enabled=true", "namespace=monitoring", "interval=15s", "scrapeTimeout=10s", "additionalLabels.release=kps")
        relabels = ("relabelings[0].action=labeldrop", "metricRelabelings[0].action=keep", "honorLabels=false")
        (monitor,) = kinds(render(*(f"{root}.{one}" for one in (*sets, *relabels))), kind)
        (endpoint,) = monitor["spec"][endpoints]

        assert monitor["metadata"]["namespace"] == "monitoring" and monitor["metadata"]["labels"]["release"] == "kps"
        assert endpoint | {"port": ""} == {
            "port": "",
            "path": "/metrics",
            "interval": "15s",
            "scrapeTimeout": "10s",
            "honorLabels": False,
            "relabelings": [{"action": "labeldrop"}],
            "metricRelabelings": [{"action": "keep"}],
        }


def test_the_operators_monitor_finds_each_replica_by_a_service_without_an_address() -> None:
    objects = render("metrics.serviceMonitor.enabled=true")
    (monitor,) = kinds(objects, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (service,) = [one for one in kinds(objects, "Service") if wanted <= one["metadata"]["labels"].items()]

    assert service["spec"]["clusterIP"] == "None"
    assert [port["name"] for port in service["spec"]["ports"]] == [monitor["spec"]["endpoints"][0]["port"]]
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [service["metadata"]["namespace"]]}


def test_the_workers_monitor_looks_where_the_operator_watches() -> None:
    def selector(*settings: str) -> Any:
        (monitor,) = kinds(render("metrics.podMonitor.enabled=true", *settings), "PodMonitor")
        return monitor["spec"]["namespaceSelector"]

    assert selector() == {"any": True}
    assert selector("watchNamespaces={a,b}") == {"matchNames": ["a", "b"]}


def test_what_the_cluster_does_not_know_is_rendered_skipped_or_refused() -> None:
    enabled = ("metrics.serviceMonitor.enabled=true", "metrics.podMonitor.enabled=true", "prometheusRule.enabled=true")

    def foreign(*settings: str) -> list[str]:
        return [one["kind"] for one in render(*enabled, *settings) if "monitoring.coreos.com" in one["apiVersion"]]

    assert sorted(foreign()) == ["PodMonitor", "PrometheusRule", "ServiceMonitor"]
    assert foreign("metrics.renderMode=SkipIfMissing") == []
    flags = [part for one in (*enabled, "metrics.renderMode=FailIfMissing") for part in ("--set", one)]
    refused = helm("template", "release", str(CHART), *flags)
    assert refused.returncode != 0 and "install the Prometheus operator's CRDs" in refused.stderr
    known = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in foreign()]
    assert helm("template", "release", str(CHART), *flags, *known).returncode == 0


def test_the_api_server_takes_monitors_and_rules_by_the_prometheus_operators_own_schemas(cluster: Cluster, tmp_path: Path) -> None:
    folder = share("prometheus-operator", "crds")
    plurals = ("servicemonitors", "podmonitors", "prometheusrules")
    for plural in plurals:
        cluster.kubectl("apply", "--server-side", "-f", str(folder / f"monitoring.coreos.com_{plural}.yaml"))
    cluster.kubectl("wait", "--for=condition=Established", *(f"crd/{plural}.monitoring.coreos.com" for plural in plurals))
    monitors = [
        f"metrics.{monitor}.{value}"
        for monitor in ("serviceMonitor", "podMonitor")
        for value in (
            "enabled=true",
            "interval=15s",
            "scrapeTimeout=10s",
            "relabelings[0].action=labelmap",
            "relabelings[0].regex=a_(.+)",
        )
    ]
    rule = ("prometheusRule.enabled=true", "prometheusRule.rules[0].record=a:b", "prometheusRule.rules[0].expr=up")
    found = [one for one in render(*monitors, *rule) if one["apiVersion"].startswith("monitoring.coreos.com/")]
    space = make_namespace(cluster.client)
    for one in found:
        one["metadata"]["namespace"] = space
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(found))

    cluster.kubectl("create", "--validate=strict", "-f", str(tmp_path / "objects.yaml"))

    assert len(found) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        "metrics.serviceMonitor.interval=often",
        "metrics.podMonitor.enable=true",
        "metrics.renderMode=Sometimes",
        "prometheusRule.disabled={HighLatency}",
        "prometheusRule.latencyMilliseconds=0",
        "prometheusRule.kind=Rule",
        "prometheusRule.rules[0].alert=NoExpression",
        "grafanaDashboard.sidecarLabels=x",
    ],
)
def test_wrong_values_are_refused_by_their_names(wrong: str) -> None:
    done = helm("template", "release", str(CHART), "--set", wrong)

    assert done.returncode != 0
    assert wrong.partition("=")[0].split(".")[0] in done.stderr


def test_dashboards_are_configmaps_that_the_sidecar_finds() -> None:
    labels = ("grafanaDashboard.sidecarLabel=boards", "grafanaDashboard.sidecarLabelValue=yes")
    objects = render("grafanaDashboard.enabled=true", *labels, "grafanaDashboard.annotations.grafana_folder=Inference")
    found = [one for one in kinds(objects, "ConfigMap") if "-dashboard-" in one["metadata"]["name"]]

    assert {one["metadata"]["name"].rpartition("-")[2] for one in found} == {"fleet", "job", "worker", "operator", "energy"}
    for one in found:
        assert one["metadata"]["labels"]["boards"] == "yes" and one["metadata"]["annotations"] == {"grafana_folder": "Inference"}
        ((name, text),) = one["data"].items()
        assert name.endswith(".json") and yaml.safe_load(text)["title"].startswith("Inference / ")
