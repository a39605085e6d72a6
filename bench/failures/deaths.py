"""A node dies under a service that is called all the time; its leader with it, or not."""

import threading
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.autoscaling.load import Answered, read
from bench.failures.stage import ALONE, DYING, PLAIN, SAFE, SERVICE, Stage, a_job, calling, end_node, lead_on, revive_node, settle
from examples.demo.cluster import wait_for
from tests.beside import beside

_BEFORE_SECONDS, _AFTER_SECONDS, _ALONE_SECONDS = 3.0, 8.0, 15.0
# Kubernetes alone takes its grace period, which is 50 s by default, and a moment.
_PLAIN_SECONDS = 65.0
_POLL_SECONDS = 0.02
_METRICS = "/apis/custom.metrics.k8s.io/v1beta2"


@dataclass
class Death:
    """One death. Times are seconds since then; None is never."""

    leader_died: bool
    last_failed: float | None = None
    failed: int = 0
    asked: int = 0
    plain_last_failed: float | None = None
    plain_failed: int | None = None
    decided: float | None = None
    namespace_deleted: float | None = None
    metrics_asked: int = 0
    metrics_failed: int = 0
    begun: float = field(default=0.0, repr=False)

    def document(self) -> dict[str, Any]:
        """For the result."""
        return {key: round(value, 3) if isinstance(value, float) else value for key, value in asdict(self).items()}


def die(at: Stage, number: int, *, with_leader: bool, plain: bool) -> Death:
    """Let the node die, and return; the service is whole before and after."""
    settle(at)
    lead_on(at, DYING if with_leader else SAFE)
    settle(at)
    after = _PLAIN_SECONDS if plain else _AFTER_SECONDS
    names = (SERVICE, PLAIN) if plain else (SERVICE,)
    plans = [at.plan(name, _BEFORE_SECONDS + after, f"{name}-{number}") for name in names]
    found = Death(with_leader)
    with calling(at, *plans) as callers, _asking_metrics(at, found):
        time.sleep(_BEFORE_SECONDS)
        found.begun = end_node(at, DYING)
        _decision(at, f"new-{number}", found)
        for process in callers:
            process.wait()
        _delete_a_namespace(at, number, found)
    answers = [read(Path(plan.result)) for plan in plans]
    found.last_failed, found.failed, found.asked = failures(answers[0], found.begun)
    if plain:
        found.plain_last_failed, found.plain_failed, _ = failures(answers[1], found.begun)
    revive_node(at, DYING)
    at.kube.delete("inferencejob", f"new-{number}", "--wait=false")
    return found


def die_alone(at: Stage, number: int) -> dict[str, Any]:
    """Let the node of a service's only worker die; there is room elsewhere, and the leader lives.

    The service is new each time: a successor that falls silent within its first minute is followed later.
    """
    settle(at)
    job = f"{ALONE}-{number}"
    at.create(a_job(job, serve={"minReplicas": 1, "maxReplicas": 1}))
    wait_for(lambda: len(at.places(job)) == 1, "its worker")
    (name,) = at.places(job).values()
    lead_on(at, SAFE if name == DYING else DYING)
    settle(at)
    plan = at.plan(job, _BEFORE_SECONDS + _ALONE_SECONDS, job)
    with calling(at, plan) as (callers,):
        time.sleep(_BEFORE_SECONDS)
        begun = end_node(at, name)
        callers.wait()
    last, failed, asked = failures(read(Path(plan.result)), begun)
    revive_node(at, name)
    at.kube.delete("inferencejob", job, "--wait=false")
    return {"last_failed": round(last, 3), "failed": failed, "asked": asked}


def failures(answers: list[Answered], since: float) -> tuple[float, int, int]:
    """When the last request was sent that failed, in seconds after `since` (0 where none failed), how many did, and of how many."""
    failed = [one.time - since for one in answers if one.status != 200]
    return max([0.0, *failed]), len(failed), len(answers)


def _decision(at: Stage, name: str, found: Death) -> None:
    at.create(a_job(name, nodeSelector={"kubernetes.io/hostname": SAFE}, serve={"minReplicas": 1, "maxReplicas": 1}))
    found.decided = placed(at, name) - found.begun


def placed(at: Stage, name: str) -> float:
    """When the job has a pod (time.time())."""
    give_up = time.time() + 60
    while not at.workers(name):
        if time.time() > give_up:
            raise RuntimeError(f"{name} has no worker after a minute")
        time.sleep(_POLL_SECONDS)
    return time.time()


def _delete_a_namespace(at: Stage, number: int, found: Death) -> None:
    name = f"gone-{at.kube.namespace}-{number}"
    at.kube.run("create", "namespace", name)
    began = time.time()
    at.kube.run("delete", "namespace", name, "--wait=false")
    try:
        wait_for(lambda: at.api.get(f"/api/v1/namespaces/{name}") is None, name, seconds=30)
        found.namespace_deleted = time.time() - began
    except RuntimeError:
        found.namespace_deleted = None


def _asking_metrics(at: Stage, found: Death) -> AbstractContextManager[None]:
    """Ask the metrics API as an HPA does, by the API server, several times a second."""

    def ask(ended: threading.Event) -> None:
        while not ended.wait(0.25):
            found.metrics_asked += 1
            try:
                found.metrics_failed += at.api.get(_METRICS) is None
            except Exception:  # noqa: BLE001 -- whatever it was, there was no answer
                found.metrics_failed += 1

    return beside(ask)
