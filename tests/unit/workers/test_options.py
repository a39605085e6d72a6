"""Where workers are, and where they were sent."""

from dataclasses import replace

from inference_operator.state.objects import PodPhase
from inference_operator.workers.options import nodes_of, planned_node
from tests.builders import a_job, a_pod

JOB = a_job()


def test_a_worker_is_where_kube_scheduler_has_put_it_and_before_that_where_it_was_sent() -> None:
    there = a_pod(JOB, node="node-2")
    sent = replace(a_pod(JOB, phase=PodPhase.PENDING, node="node-3"), node=None)

    assert [planned_node(pod) for pod in (there, sent, replace(sent, worker=None))] == ["node-2", "node-3", None]
    assert set(nodes_of([there, sent])) == {"node-2", "node-3"}
