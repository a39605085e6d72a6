"""Pods and nodes from the API: what they take, whose they are, and what problems they have."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api import names
from inference_operator.state.objects import PodProblem, Taint
from inference_operator.state.parse import parse_node, placement_text
from inference_operator.state.parse_pods import parse_pod
from inference_protocol.messages import encode_report
from inference_protocol.reasons import WorkerReason
from tests.builders import a_job, a_pod, a_report
from tests.unit.state.raw import Raw, container, meta, raw_pod, raw_worker

# What a pod takes, by kube-scheduler's rules (resource.PodRequests).


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        pytest.param(raw_pod(container({"cpu": "1"}), container({"cpu": "500m"})), 1500, id="the containers' sum"),
        pytest.param(raw_pod(container(limits={"cpu": "2"})), 2000, id="a limit without a request"),
        pytest.param(raw_pod(container({"cpu": "1"}, {"cpu": "2"})), 1000, id="the request, not the limit"),
        pytest.param(
            raw_pod(container({"cpu": "1"}), spec={"initContainers": [container({"cpu": "3"}), container({"cpu": "2"})]}),
            3000,
            id="the greediest init container",
        ),
        pytest.param(
            raw_pod(container({"cpu": "2"}), spec={"initContainers": [container({"cpu": "1"}, restartPolicy="Always")]}),
            3000,
            id="a sidecar beside the containers",
        ),
        pytest.param(raw_pod(container({"cpu": "1"}), spec={"overhead": {"cpu": "250m"}}), 1250, id="the runtime's overhead"),
        pytest.param(raw_pod(container()), 0, id="nothing"),
        pytest.param(
            raw_pod(
                container({"cpu": "1"}),
                spec={"initContainers": [container({"cpu": "1"}, restartPolicy="Always"), container({"cpu": "4"})]},
            ),
            5000,
            id="an init container beside the sidecars before it",
        ),
        pytest.param(
            raw_pod(container({"cpu": "1"}), spec={"resources": {"requests": {"cpu": "6"}}}),
            6000,
            id="the pod's own resources over its containers'",
        ),
    ],
)
def test_a_pod_takes_what_the_scheduler_reserves(pod: Raw, cpu: int) -> None:
    requests = parse_pod(pod).requests

    assert requests.get("cpu", 0) == cpu
    assert requests["pods"] == 1


# Whose it is.


def test_a_worker_is_known_by_its_labels() -> None:
    pod = parse_pod(raw_worker())

    assert pod.worker is not None
    assert (pod.worker.job_uid, pod.worker.number, pod.worker.revision, pod.worker.accelerator) == ("uid-of-job", 2, "r1", "gpu")


@pytest.mark.parametrize("labels", [{names.LABEL_MANAGED_BY: "helm"}, {names.LABEL_MANAGED_BY: ""}])
def test_another_managers_pod_is_no_worker_and_still_takes_room(labels: dict[str, str]) -> None:
    pod = parse_pod(raw_worker(labels=labels))

    assert pod.worker is None
    assert pod.requests == {"cpu": 1000, "pods": 1}


label_values = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?", fullmatch=True)


@given(label_values, st.text(max_size=40), st.text(max_size=200))
def test_garbage_in_labels_annotations_and_last_words_never_raises(number: str, placement: str, words: str) -> None:
    ended = {"terminated": {"exitCode": 1, "message": words}}
    pod = parse_pod(raw_worker(ended, labels={names.LABEL_ATTEMPT: number}, annotations={names.ANNOTATION_PLACEMENT: placement}))

    assert pod.worker is not None and pod.worker.number >= 0
    assert pod.worker.placement is None
    assert pod.report is None


def test_a_placement_is_read_from_its_annotation() -> None:
    worker = a_pod(a_job()).worker
    assert worker is not None and worker.placement is not None

    pod = parse_pod(raw_worker(annotations={names.ANNOTATION_PLACEMENT: placement_text(worker.placement)}))

    assert pod.worker is not None and pod.worker.placement == worker.placement


# How it stands.


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Failed", "Unknown"])
def test_every_phase_is_read(phase: str) -> None:
    assert parse_pod(raw_pod(status={"phase": phase})).phase == phase


def test_a_phase_that_we_do_not_know_is_unknown() -> None:
    assert parse_pod(raw_pod(status={"phase": "Hibernating"})).phase == "Unknown"


def test_a_report_is_read_from_the_last_words() -> None:
    report = a_report("Failed", reason=WorkerReason.INPUT_INVALID, message="line 3 is torn")
    ended = {"terminated": {"exitCode": 3, "message": encode_report(report).decode(), "startedAt": "2026-04-02T11:59:55Z",
                            "finishedAt": "2026-04-02T12:00:00Z"}}  # fmt: skip
    pod = parse_pod(raw_worker(ended, phase="Failed"))

    assert pod.report == report
    assert pod.exit_code == 3
    assert pod.started is not None and pod.ended is not None and (pod.ended - pod.started).total_seconds() == 5


def test_the_times_of_a_node_whose_clock_is_behind_begin_when_its_pod_was_made() -> None:
    """An end that lay an hour back had no pause after it: a worker that crashed was followed as fast as pods can be made."""
    ended = {"terminated": {"exitCode": 3, "startedAt": "2026-04-02T11:00:00Z", "finishedAt": "2026-04-02T11:00:07Z"}}
    pod = parse_pod(raw_worker(ended, phase="Failed"))

    assert pod.created is not None
    assert (pod.started, pod.ended) == (pod.created, pod.created + timedelta(seconds=7))


READY = {"type": "Ready", "status": "True"}
SINCE = {"lastTransitionTime": "2026-04-02T11:59:00Z"}


@pytest.mark.parametrize(("status", "since"), [("True", True), ("False", False)])
def test_since_when_a_worker_answers_is_told_only_of_one_that_does(status: str, *, since: bool) -> None:
    pod = parse_pod(raw_worker({"running": {}}, conditions=[{**READY, **SINCE, "status": status}]))

    assert (pod.ready, pod.ready_since is not None) == (since, since)


UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}


@pytest.mark.parametrize(
    ("worker", "problem"),
    [
        pytest.param(raw_worker({"running": {}}, conditions=[READY]), None, id="all is well"),
        pytest.param(raw_worker({"waiting": {"reason": "ContainerCreating"}}), None, id="still starting"),
        pytest.param(
            raw_worker({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}),
            PodProblem("ImagePullBackOff", "Back-off"),
            id="no image",
        ),
        pytest.param(raw_worker(conditions=[UNSCHEDULED]), PodProblem("Unschedulable", "0/3 nodes are available"), id="no node"),
        pytest.param(raw_worker({"terminated": {"exitCode": 0}}), None, id="ended well"),
        pytest.param(
            raw_worker({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), PodProblem("OOMKilled", ""), id="killed"
        ),
        pytest.param(raw_worker({"terminated": {"exitCode": 2}}), PodProblem("Error", ""), id="ended badly without a reason"),
        pytest.param(
            raw_worker(
                {"terminated": {"exitCode": 137, "reason": "Error"}},
                reason="Evicted",
                message="low on memory",
                conditions=[{"type": "DisruptionTarget", "status": "True"}],
            ),
            PodProblem("Evicted", "low on memory"),
            id="the pod's own reason counts more",
        ),
        pytest.param(
            raw_worker({"terminated": {"exitCode": 137, "reason": "Error"}}, reason="Evicted", message="over 2Gi"),
            PodProblem("Evicted", "over 2Gi", over_limit=True),
            id="ended for what it used itself",
        ),
        pytest.param(
            raw_worker(reason="Evicted", message="The node had condition: [DiskPressure]."),
            PodProblem("Evicted", "The node had condition: [DiskPressure]."),
            id="turned away",
        ),
    ],
)
def test_the_problem_of_a_worker(worker: Raw, problem: PodProblem | None) -> None:
    assert parse_pod(worker).problem == problem


@pytest.mark.parametrize("code", [0, 3])
def test_a_worker_has_ended_though_a_proxy_that_was_injected_before_it_runs_on(code: int) -> None:
    """kubernetes/kubernetes#25908: the pod of a job stays Running for as long as a mesh's proxy does."""
    report = a_report("Succeeded" if code == 0 else "Failed", message="its own words")
    ended = {"terminated": {"exitCode": code, "message": encode_report(report).decode(), "finishedAt": "2026-04-02T12:00:00Z"}}
    pod = parse_pod(raw_worker(ended, phase="Running", conditions=[{"type": "Ready", "status": "False"}]))

    assert pod.over and not pod.terminal
    assert (pod.exit_code, pod.report, pod.lingering) == (code, report, ("sidecar",))


def test_a_native_sidecar_does_not_linger_since_its_kubelet_ends_it() -> None:
    proxy = {"name": "linkerd-proxy", "state": {"running": {}}}
    raw = raw_worker({"terminated": {"exitCode": 0}}, phase="Running", initContainerStatuses=[proxy])
    raw["status"]["containerStatuses"] = raw["status"]["containerStatuses"][1:]
    pod = parse_pod(raw)

    assert pod.over and not pod.lingering


def test_a_worker_that_runs_is_not_over_whatever_has_ended_beside_it() -> None:
    raw = raw_worker({"running": {}}, phase="Running")
    raw["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 1}}

    assert not parse_pod(raw).over


@pytest.mark.parametrize(
    ("kind", "state", "problem"),
    [
        ("containerStatuses", {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}, "ImagePullBackOff"),
        ("initContainerStatuses", {"terminated": {"exitCode": 1, "message": "no iptables"}}, "Error"),
    ],
)
def test_what_is_beside_the_worker_is_named_when_it_keeps_the_pod(kind: str, state: Raw, problem: str) -> None:
    raw = raw_worker({"waiting": {"reason": "PodInitializing"}})
    raw["status"][kind] = [{"name": "istio", "state": state}, *raw["status"].get(kind, [])[1:]]
    found = parse_pod(raw).problem

    assert found is not None and (found.reason, found.container) == (problem, "istio")


def test_only_the_workers_own_container_counts() -> None:
    pod = parse_pod(raw_worker({"running": {"startedAt": "2026-04-02T12:00:00Z"}}, conditions=[READY], podIP="10.0.0.7"))

    assert pod.ready and pod.address == "10.0.0.7" and pod.started is not None


# Nodes.


def test_a_node_is_read() -> None:
    node = parse_node(
        {
            "metadata": meta("n", labels={"zone": "a"}),
            "spec": {
                "unschedulable": True,
                "taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "v", "value": "x", "effect": "NoExecute"}],
            },
            "status": {"allocatable": {"cpu": "3920m", "memory": "1Ki", "pods": "110"}, "conditions": [READY]},
        }
    )

    assert node.taints == (Taint("k", "", "NoSchedule"), Taint("v", "x", "NoExecute"))
    assert node.allocatable == {"cpu": 3920, "memory": 1024, "pods": 110}
    assert node.ready and node.unschedulable and node.labels == {"zone": "a"}


def test_a_node_that_has_not_spoken_yet_is_not_ready() -> None:
    node = parse_node({"metadata": meta("n"), "spec": {}, "status": {}})

    assert not node.ready and not node.unschedulable and node.allocatable == {}


@pytest.mark.parametrize(
    ("handlers", "has"),
    [
        ([], False),
        ([{"name": "", "features": {"userNamespaces": True}}], True),
        ([{"features": {"userNamespaces": True}}], True),
        ([{"name": ""}, {"name": "other", "features": {"userNamespaces": True}}], False),
        ([{"name": "", "features": {"recursiveReadOnlyMounts": True}}], False),
    ],
)
def test_a_node_has_user_namespaces_where_its_default_runtime_says_so(handlers: list[Raw], *, has: bool) -> None:
    node = parse_node({"metadata": meta("n"), "spec": {}, "status": {"runtimeHandlers": handlers}})

    assert node.user_namespaces is has


def test_since_when_a_pod_has_its_node_is_told_of_anybodys() -> None:
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-04-02T12:01:00Z"}
    pods = [parse_pod(raw_pod(container(), status={"conditions": [{**bound, "status": status}]})) for status in ("True", "False")]

    assert [pod.bound_since is not None for pod in pods] == [True, False]
