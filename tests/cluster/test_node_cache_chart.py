"""The cache of models on each node, as the chart makes it: no rights, what it is told, and who reaches it."""

from typing import Any

import msgspec
import pytest
import yaml

from inference_operator.nodecache.controller import FIELD
from inference_protocol.hosts import NO_PROXY_VARIABLE, PROXY_VARIABLE
from inference_protocol.node_cache import CONFIG_VARIABLE, METRICS_PORT, PORT, CacheConfig
from tests.cluster.test_chart import kinds, policies, render

pytestmark = pytest.mark.cluster


def settings_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (config,) = kinds(objects, "ConfigMap")
    found: dict[str, Any] = yaml.safe_load(config["data"]["config.yaml"])
    return found


CACHE = "release-inference-operator-node-cache"


def of_cache(*settings: str) -> tuple[dict[str, Any], CacheConfig]:
    """The DaemonSet's pod, and what it is told."""
    (daemon_set,) = kinds(render("nodeCache.enabled=true", *settings), "DaemonSet")
    pod = daemon_set["spec"]["template"]["spec"]
    variable, *_ = pod["containers"][0]["env"]
    assert variable["name"] == CONFIG_VARIABLE
    return pod, msgspec.json.decode(variable["value"], type=CacheConfig)


def test_nodes_have_no_cache_unless_the_administrator_wants_one() -> None:
    assert kinds(render(), "DaemonSet") == []
    assert not settings_of(render())["nodeCache"]["enabled"]


def test_a_cache_has_no_token_of_the_api_server_and_no_right() -> None:
    pod, _ = of_cache()
    (container,) = pod["containers"]

    assert pod["automountServiceAccountToken"] is False and "serviceAccountName" not in pod
    assert pod["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532}.items()
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [set(volume) - {"name"} for volume in pod["volumes"]] == [{"emptyDir"}, {"secret"}, {"emptyDir"}]


def test_a_cache_is_told_its_limit_in_bytes_and_prefetches_from_listed_hosts() -> None:
    hosts = "settings.fetch.allowedHosts={models.example}"

    assert of_cache("nodeCache.sizeLimit=3Gi")[1].limit_bytes == 3 << 30
    assert of_cache("nodeCache.sizeLimit=300Mi")[1].limit_bytes == 300 << 20
    assert of_cache(hosts)[1].fetch_from == ("models.example",)
    assert of_cache(hosts, "nodeCache.prefetch=false")[1].fetch_from == ()
    assert of_cache("nodeCache.sharing=Cluster")[1].shared and not of_cache()[1].shared


def test_a_cache_prefetches_through_the_administrators_proxy() -> None:
    pod, _ = of_cache("settings.fetch.httpsProxy=http://proxy.example:3128", "settings.fetch.noProxy={*.svc}")
    env = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}

    assert (env[PROXY_VARIABLE], env[NO_PROXY_VARIABLE]) == ("http://proxy.example:3128", "*.svc")


def test_the_operator_and_the_caches_share_a_secret_that_nobody_else_reads() -> None:
    objects = render("nodeCache.enabled=true")
    told = settings_of(objects)["nodeCache"]
    pod, config = of_cache()
    rules = [rule for role in kinds(objects, "Role") for rule in role["rules"] if told["keyName"] in rule.get("resourceNames", ())]

    assert told["keyName"] in [s["metadata"]["name"] for s in kinds(objects, "Secret")]
    assert pod["volumes"][1]["secret"]["secretName"] == told["keyName"]
    assert config.key_file.rpartition("/")[2] == pod["volumes"][1]["secret"]["items"][0]["key"] == FIELD
    assert [rule["verbs"] for rule in rules] == [["get", "update"]]


def test_workers_find_the_cache_of_their_own_node_alone() -> None:
    objects = render("nodeCache.enabled=true")
    service = next(s for s in kinds(objects, "Service") if s["metadata"]["name"] == CACHE)
    (daemon_set,) = kinds(objects, "DaemonSet")
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]

    assert settings_of(objects)["nodeCache"]["service"] == CACHE and settings_of(objects)["nodeCache"]["namespace"] == "system"
    assert service["spec"]["internalTrafficPolicy"] == "Local" and service["spec"]["ports"][0]["port"] == PORT
    assert service["spec"]["selector"].items() <= labels.items()
    assert settings_of(objects)["nodeCache"]["podLabels"].items() <= labels.items()


def test_network_policies_let_workers_reach_the_cache_and_it_no_more_than_they_may() -> None:
    store = "networkPolicy.workers.egress[0].ports[0].port=9000"
    found = policies("nodeCache.enabled=true", "watchNamespaces={a}", store)
    cache, worker = found["system", CACHE], found["a", "release-inference-operator-workers"]
    closed = policies("nodeCache.enabled=true", "nodeCache.prefetch=false", store)["system", CACHE]
    to_cache = next(rule for rule in worker["egress"] if rule["ports"] == [{"port": PORT}])

    assert to_cache["to"][0]["podSelector"] == cache["podSelector"]
    assert cache["egress"] == [rule for rule in worker["egress"] if rule != to_cache]
    assert closed["egress"] == []
    assert [port["port"] for rule in cache["ingress"] for port in rule["ports"]] == [PORT, METRICS_PORT]
    assert {"port": PORT} in [port for rule in found["system", "release-inference-operator"]["egress"] for port in rule["ports"]]
