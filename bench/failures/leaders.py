"""The process that leads is killed: how long until the next job has its place."""

import signal
import time
from typing import Any

from bench.failures.deaths import placed
from bench.failures.stage import SAFE, Stage, a_job, restarting, signal_operator
from examples.demo.cluster import wait_for


def kill_leader(at: Stage, number: int) -> dict[str, Any]:
    """Kill it, create a job, and wait for the job's worker."""
    wait_for(lambda: len(at.operators()) == 2 and at.leader() in at.operators(), "two operators", seconds=90)
    leader, name = at.leader(), f"next-{number}"
    with restarting(at, leader):
        signal_operator(leader, signal.SIGKILL)
        begun = time.time()
        at.create(a_job(name, nodeSelector={"kubernetes.io/hostname": SAFE}, serve={"minReplicas": 1, "maxReplicas": 1}))
        decided = placed(at, name) - begun
        follower = at.leader()
    at.kube.delete("inferencejob", name, "--wait=false")
    return {"decided": round(decided, 3), "by": "itself" if follower == leader else "standby"}
