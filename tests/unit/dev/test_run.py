"""`make run`: what the operator is started with, and that the deployed one is out of the way and comes back."""

import json
import sys
from pathlib import Path

import pytest

from dev import run
from dev.console import DevError
from dev.run import Release, Target, agree, command, environment, kubeconfig, release, rollback, settings, target
from inference_operator.kube.connection import connect
from inference_operator.settings import load_settings
from tests import cluster_tools
from tests.cluster_tools import NAME, NAMESPACE, ClusterTools

RELEASE = Release(NAMESPACE, NAME, revision=7, account="an-account", replicas=2, selector="a=1,b=2")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterTools:
    made = cluster_tools.make(tmp_path)
    for name, value in made.variables().items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def where(tools: ClusterTools) -> Target:
    return target({"KUBECONFIG": str(tools.kubeconfig)})


def config_map(tools: ClusterTools) -> str:
    return (tools.folder / "configmap.yaml").read_text()


def test_the_cluster_is_the_one_of_kubeconfig(where: Target, tools: ClusterTools) -> None:
    assert (where.kubeconfig, where.context, where.server, where.local) == (tools.kubeconfig, "theirs", "http://127.0.0.1:1", False)


def test_without_kubeconfig_it_is_the_local_one(tools: ClusterTools) -> None:
    with pytest.raises(DevError, match="make cluster"):
        target({})

    tools.state.mkdir()
    (tools.state / "kubeconfig").symlink_to(tools.kubeconfig)
    assert target({}).local


def test_the_local_cluster_is_known_when_kubeconfig_names_it(tools: ClusterTools) -> None:
    tools.state.mkdir()
    (tools.state / "kubeconfig").write_text(tools.kubeconfig.read_text())

    assert target({"KUBECONFIG": str(tools.state / "kubeconfig")}).local


def test_of_several_kubeconfigs_none_is_taken(tools: ClusterTools) -> None:
    with pytest.raises(DevError, match="several"):
        target({"KUBECONFIG": f"{tools.kubeconfig}:{tools.kubeconfig}"})


def test_the_release_is_told_by_helm_and_its_deployment(where: Target) -> None:
    assert release(where, NAMESPACE, NAME) == RELEASE


def test_a_cluster_without_release_is_left_alone(where: Target, tools: ClusterTools) -> None:
    (tools.folder / "status.json").unlink()

    with pytest.raises(DevError, match="install the chart"):
        release(where, NAMESPACE, NAME)


def test_the_settings_are_those_of_the_release_and_fit_a_process_outside(tools: ClusterTools, tmp_path: Path) -> None:
    found = settings(config_map(tools), port=9090)

    file = tmp_path / "settings.json"
    file.write_text(json.dumps(found))
    loaded = load_settings(file)
    assert (loaded.http_port, loaded.worker_image, loaded.policy.path) == (9090, "worker:1", "")
    assert (loaded.custom_metrics.port, loaded.keda_scaler.port, loaded.gateway.port) == (0, 0, 0)
    assert loaded.lease_name == load_settings(None).lease_name
    # At a breakpoint nothing is renewed.
    assert loaded.lease_seconds == 15


def test_what_is_served_stays_on_or_off(tmp_path: Path) -> None:
    on = {"customMetrics": {"enabled": True, "port": 8443, "service": "s"}, "kedaScaler": {"enabled": True, "port": 6000}}
    tools = cluster_tools.make(tmp_path / "tools", settings=on)

    found = settings(config_map(tools), port=1)

    assert found["customMetrics"] == {"enabled": True, "port": 0, "service": "s"}
    assert found["kedaScaler"] == {"enabled": True, "port": 0}


def test_another_image_of_workers_is_let_in_by_the_charts_policies_too(
    where: Target, tools: ClusterTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is a value of the release meanwhile: settings and policies are made of it."""
    monkeypatch.setattr(run, "command", lambda **_: ["true"])

    run.run(where, RELEASE, debug=False, port=8080, worker_image="worker:2")

    assert any("helm upgrade" in line and "--set settings.workerImage=worker:2" in line for line in tools.journal)


def test_the_operator_has_its_accounts_token_and_nobody_elses() -> None:
    cluster = {"name": "c", "cluster": {"server": "https://a", "certificate-authority-data": "b"}}

    made = kubeconfig({"clusters": [cluster], "users": [{"name": "admin", "user": {"token": "admin"}}]}, "mine")

    assert made["clusters"] == [cluster]
    assert [user["user"] for user in made["users"]] == [{"token": "mine"}]


def test_the_environment_is_what_the_operator_reads(tools: ClusterTools, tmp_path: Path) -> None:
    inherited = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": "other", "HOME": "/home"}

    made = environment(inherited, kubeconfig_path=tools.kubeconfig, config=tmp_path / "config.yaml", namespace="n")

    assert connect(made).server == "http://127.0.0.1:1"
    assert (made["POD_NAMESPACE"], made["INFERENCE_OPERATOR_CONFIG"]) == ("n", str(tmp_path / "config.yaml"))
    assert made["HOME"] == "/home"
    assert all(Path(part, "..").resolve() == run.ROOT for part in made["PYTHONPATH"].split(":"))


def test_the_operator_is_started_alone_or_under_a_debugger() -> None:
    module = ["-m", "inference_operator"]

    assert command(debug=False, has_debugpy=True) == [sys.executable, *module]
    assert command(debug=True, has_debugpy=True)[1:3] == ["-m", "debugpy"]
    assert command(debug=True, has_debugpy=True)[-2:] == module
    assert command(debug=True, has_debugpy=False) == [sys.executable, "-m", "pdb", *module]


def test_whose_cluster_is_not_the_local_one_is_asked(where: Target, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DevError, match="nothing was changed"):
        agree(where, RELEASE, yes=False)

    agree(where, RELEASE, yes=True)
    agree(Target(where.kubeconfig, where.context, where.server, local=True), RELEASE, yes=False)
    assert rollback(RELEASE) in capsys.readouterr().err


def test_the_deployed_operator_is_away_while_ours_runs(
    where: Target, tools: ClusterTools, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        run, "command", lambda **_: ["sh", "-c", f'echo "ours in $POD_NAMESPACE" >> {tools.folder}/journal; exit 3']
    )

    code = run.run(where, RELEASE, debug=False, port=8080, worker_image="")

    assert code == 3
    steps = [line.split(" -")[0] for line in tools.journal if "config view" not in line]
    assert steps == [
        "helm upgrade inference-operator",
        "kubectl wait pod",
        "kubectl get configmap inference-operator",
        "kubectl create token an-account",
        "ours in inference-system",
        "helm rollback inference-operator 7",
    ]
    assert any("replicaCount=0" in line and "--reset-then-reuse-values" in line for line in tools.journal)
    assert any("-l a=1,b=2 --for=delete" in line for line in tools.journal)
    assert "is as it was, with 2 replicas" in capfd.readouterr().err


def test_the_deployed_operator_comes_back_when_ours_never_starts(where: Target, tools: ClusterTools) -> None:
    tools.fail_upgrades()

    with pytest.raises(DevError, match="no upgrade today"):
        run.run(where, RELEASE, debug=False, port=8080, worker_image="")

    assert tools.journal[-1].startswith("helm rollback inference-operator 7 -n inference-system")
