"""The commands of the README, as a shell sees them."""

import subprocess

from examples.demo.cluster import ROOT, Kubectl


def test_make_cluster_ends_with_the_line_to_export(kube: Kubectl) -> None:
    done = subprocess.run(["make", "-s", "cluster"], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.strip().splitlines()[-1] == f"export KUBECONFIG={kube.kubeconfig}"


def test_two_real_nodes_are_ready_and_only_one_has_gpus(kube: Kubectl) -> None:
    told = kube.run(
        "get", "nodes", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.allocatable.nvidia\\.com/gpu}{'\\n'}{end}"
    )

    assert [line.split() for line in told.splitlines()] == [["cpu-1"], ["gpu-1", "4"]]


def test_a_second_install_changes_nothing(kube: Kubectl) -> None:
    from examples.demo.cluster import build_images, install

    def pods() -> str:
        return kube.run("get", "pods", "-n", "inference-system", "-o", "name")

    before = pods()
    install(kube, build_images())

    assert pods() == before
