"""What users of other batch schedulers complain of, one test a complaint; docs/scheduling-reports.md is the table."""

import pickle
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference_operator.api.conditions import Reason
from inference_operator.scheduling.node_capacity import free_amounts
from inference_operator.scheduling.scheduler import schedule
from inference_operator.scheduling.types import Decision, Fleet, PlacementRequest, RunningWork
from inference_operator.settings import CostWeights, Settings
from inference_operator.state.objects import Node, Pod, PodPhase
from inference_operator.state.parse import parse_node
from inference_operator.state.parse_pods import parse_pod
from tests.builders import NOW, a_node, a_request, a_running_work, a_tenants_pod, an_option, somebodys_pod
from tests.simulation.cluster import Script
from tests.simulation.world import World, writes_of

ROOT = Path(__file__).resolve().parents[2]
ON_GPU = an_option("gpu", gpu=1)
GPU_NODE = a_node("gpu-1", gpu=1)


def decisions(
    *requests: PlacementRequest,
    nodes: tuple[Node, ...] = (GPU_NODE,),
    pods: tuple[Pod, ...] = (),
    running: tuple[RunningWork, ...] = (),
    weights: CostWeights | None = None,
) -> dict[str, Decision]:
    held = tuple(a_tenants_pod(running_work) for running_work in running)
    found = schedule(Fleet(nodes, (*pods, *held), requests, running), weights or CostWeights(), NOW)
    return {key.name: decision for key, decision in found.items()}


def test_the_wait_does_not_depend_on_the_depth_of_the_queue() -> None:
    """kueue#14477: one job is taken from a queue in each cycle, so that 536 jobs wait an hour beside free quota."""
    found = decisions(*(a_request(f"n{i:03}") for i in range(536)), nodes=tuple(a_node(f"node-{i}") for i in range(67)))

    assert all(decision.assignments for decision in found.values())


def test_a_job_that_fits_is_not_hidden_behind_a_thousand_that_do_not() -> None:
    """kueue#9715: the CPU job that could start stands behind a thousand others and is never reached."""
    ahead = [a_request(f"gpu-{i:04}", ON_GPU, deadline_in=500, priority=9, created_ago=99) for i in range(1000)]
    found = decisions(*ahead, a_request("cpu", created_ago=1), pods=(somebodys_pod(node="gpu-1", gpu=1),))

    assert [name for name, decision in found.items() if decision.assignments] == ["cpu"]


def a_queue_and_much_ado() -> World:
    scripts = {f"waits-{n}": Script(work=300.0) for n in range(12)} | {f"passes-{n}": Script(work=5.0) for n in range(20)}
    world = World(scripts=scripts)
    world.node("gpu-1", gpu=1)
    world.node("cpu-1")
    world.model(seconds={"gpu": 300.0, "cpu": 5.0})
    for number in range(12):
        world.job(f"waits-{number}", at=0.1, accelerator="gpu")
    for number in range(20):
        world.job(f"passes-{number}", at=5.0 + 5 * number, accelerator="cpu")
    return world.run(until=150)


def test_jobs_that_wait_are_not_written_while_others_come_and_go() -> None:
    """kueue#8095, #8081: status writes for jobs that were not admitted slow down those that could be."""
    world = a_queue_and_much_ado()

    waiting = [f"waits-{n}" for n in range(12) if world.created(f"waits-{n}") == 0]
    assert len(waiting) == 11
    assert all(writes_of(world, name) == 1 for name in waiting)


def test_one_pass_answers_a_burst() -> None:
    """kueue#9508: jobs that can't be admitted are requeued one by one, which blocks those that can."""
    world = World()
    world.node("cpu-1", cpu=64)
    for number in range(30):
        world.job(f"job-{number}", at=0.1)
    world.run(until=20)

    moments = {line[:10] for line in world.trace.lines if "is created for cpu-1" in line}
    assert len(moments) <= 2


def a_preemption(seed: int | None = None) -> World:
    world = World(seed=seed, scripts={f"long-{n}": Script(work=100.0, items=100, resumes=True) for n in range(4)})
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    for number in range(4):
        world.job(f"long-{number}", at=0.1, accelerator="gpu", items=100)
    world.job("urgent", at=20.0, accelerator="gpu", deadline_at=75)
    return world.run(until=100)


@pytest.mark.parametrize("seed", range(4))
def test_room_that_was_made_is_taken_by_the_one_it_was_made_for(seed: int) -> None:
    """kueue#13662, #13797: victims are admitted again before the preemptor has started, without end."""
    world = a_preemption(seed)
    made = [line.split()[2] for line in world.trace.lines if "is created for gpu-1" in line]

    assert made[1] == "urgent"
    assert sum(world.status(f"long-{number}").get("preemptions", 0) for number in range(4)) == 1


@pytest.mark.parametrize("seed", range(4))
def test_making_room_ends(seed: int) -> None:
    """kueue#2821, #3779: endless loops of preemption and admission."""
    world = World(seed=seed, scripts={f"job-{n}": Script(work=60.0, items=60, resumes=True) for n in range(8)})
    world.node("gpu-1", gpu=1)
    world.node("gpu-2", gpu=1)
    world.model(seconds={"gpu": 30.0})
    for number in range(8):
        # Each is more urgent than all before it.
        world.job(f"job-{number}", at=0.1 + 8 * number, accelerator="gpu", items=60, deadline_at=700.0 - 60 * number)
    world.run(until=800)
    preemptions = [world.status(f"job-{number}").get("preemptions", 0) for number in range(8)]

    assert {gist[0] for gist in world.final().values()} == {"Succeeded"}
    assert sum(preemptions) <= 8
    assert max(preemptions) <= Settings().preemptions_per_job


def test_nobody_makes_room_for_a_job_that_fits_nowhere() -> None:
    """kueue#6947, #6929: one impossible workload triggers endless preemption of the others."""
    running = a_running_work(node="gpu-1", option=ON_GPU)
    found = decisions(a_request("giant", an_option("gpu", gpu=8), priority=1000, deadline_in=60), running=(running,))

    pending = found["giant"].pending
    assert list(found) == ["giant"]
    assert pending is not None and pending.reason is Reason.NO_NODE_FITS


def test_a_worker_that_ends_while_it_is_told_to_leave_blocks_nothing() -> None:
    """kueue#10181: preemption waits for an event that never comes, kept in memory only."""
    world = World(scripts={"long": Script(work=20.0, items=20)})
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    # By its profile it runs for a hundred seconds; it ends in the very second in which it is told to leave.
    world.job("long", at=0.1, accelerator="gpu", items=100)
    world.job("urgent", at=22.2, accelerator="gpu", deadline_at=75)
    world.run(until=150)

    assert {gist[0] for gist in world.final().values()} == {"Succeeded"}
    assert world.status("urgent")["deadline"]["outlook"] == "Met"


def test_when_all_is_done_all_is_free() -> None:
    """kueue#14811: quota of jobs without pods is held for hours."""
    world = World(scripts={"long": Script(work=40.0, items=40, resumes=True)})
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("long", at=0.1, accelerator="gpu", items=40)
    world.job("urgent", at=5.0, accelerator="gpu", deadline_at=45)
    world.run(until=200)
    nodes = [parse_node(raw) for raw in world.api.all("nodes").values()]
    pods = [parse_pod(raw) for raw in world.api.all("pods").values()]

    assert world.status("long")["preemptions"] == 1
    assert free_amounts(nodes, pods) == {node.name: dict(node.allocatable) for node in nodes}


def test_a_job_that_is_suspended_gives_its_place_away() -> None:
    """kueue#6035: a rejected check keeps the reservation of 900 GPUs."""
    world = World()
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 300.0})
    world.job("held", at=0.1, accelerator="gpu")
    world.job("next", at=0.3, accelerator="gpu")
    world.change("held", at=10.0, suspend=True)
    world.run(until=30)

    assert (world.created("next"), len(world.living("held"))) == (1, 0)


@pytest.mark.parametrize("crash", range(1, 8))
def test_a_restart_overcommits_nothing(crash: int) -> None:
    """kueue#1450: churn and a restart admit more than there is."""
    world = World(crash_after=(crash, crash))
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    for number in range(3):
        world.job(f"job-{number}", at=0.1, accelerator="gpu")
    # It ends with a check that no node was ever given more than it has.
    world.run(until=130)

    assert all(most <= 1 for most in world.most_workers.values())
    assert {gist[0] for gist in world.final().values()} == {"Succeeded"}


def test_a_device_is_free_when_its_worker_has_gone_and_not_when_it_is_told_to() -> None:
    """kueue#13163: is quota released when a pod is told to stop, or when it has ended?"""
    leaving = replace(somebodys_pod(node="gpu-1", gpu=1), deleting=True)
    gone = replace(leaving, phase=PodPhase.FAILED)

    assert not decisions(a_request("n", ON_GPU), pods=(leaving,))["n"].assignments
    assert decisions(a_request("n", ON_GPU), pods=(gone,))["n"].assignments


def test_a_head_that_waits_for_one_class_blocks_no_other() -> None:
    """kueue#8309, #8393: strict order blocks other flavours, none starves large jobs."""
    head = a_request("head", ON_GPU, priority=9, deadline_in=500)
    found = decisions(head, a_request("cpu", deadline_in=900), pods=(somebodys_pod(node="gpu-1", gpu=1),))

    assert not found["head"].assignments
    assert found["cpu"].assignments


def test_whoever_waits_is_told_why_where_it_stands_and_when_it_will_start() -> None:
    """kueue#2391: workloads wait for minutes to hours with no status and no event."""
    world = World()
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    for number in range(3):
        world.job(f"job-{number}", at=0.1, accelerator="gpu", deadline_at=200.0 + number)
    world.run(until=2)

    for position, name in enumerate(("job-1", "job-2"), start=1):
        status = world.status(name)
        (placed,) = [c for c in status["conditions"] if c["type"] == "Placed"]
        assert "Insufficient nvidia.com/gpu (1 requested, 0 of 1 free)" in placed["message"]
        assert f"as number {position} of those that wait" in placed["message"]
        assert status["queue"]["position"] == position
        assert status["queue"]["expectedStartTime"]
        assert status["deadline"]["slackSeconds"] > 0


def test_of_a_pod_only_what_decisions_read_is_kept() -> None:
    """kueue#3818, #6971: gigabytes for 30,000 jobs, since whole objects are cached."""
    raw = {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "uid": "u",
            "resourceVersion": "1",
            "annotations": {"note": "x" * 200_000},
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": "y" * 100_000}}],
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i", "args": ["z" * 100_000]}]},
        "status": {"phase": "Running"},
    }

    assert len(pickle.dumps(parse_pod(raw))) < 2_000


def small_ones_keep_coming() -> World:
    world = World(scripts={f"small-{n}": Script(work=17.0) for n in range(12)})
    world.node("cpu-1", cpu=2)
    world.model(seconds={"cpu": 17.0})
    for number in range(12):
        spec: dict[str, Any] = {"accelerator": "cpu", "resources": {"requests": {"cpu": "1"}}}
        world.job(f"small-{number}", at=0.1 + 10 * number, **spec)
    large: dict[str, Any] = {"accelerator": "cpu", "resources": {"requests": {"cpu": "2"}}}
    world.job("large", at=15.0, deadline_at=80, priority=10, **large)
    return world.run(until=250)


def test_small_late_comers_do_not_starve_a_large_early_one() -> None:
    """volcano#3095, #748, #1901: small late jobs starve large early ones; waits that were promised do not hold."""
    assert small_ones_keep_coming().status("large")["deadline"]["outlook"] == "Met"


def test_who_waits_holds_nothing() -> None:
    """volcano#5006, #5794: a group that can't be scheduled holds quota."""
    waits = a_request("waits", an_option(cpu="8"), priority=9)
    found = decisions(waits, a_request("small"), nodes=(a_node(cpu="8"),), pods=(somebodys_pod(cpu="1"),))

    assert not found["waits"].assignments
    assert found["small"].assignments


def test_nobody_is_preempted_while_another_node_has_room() -> None:
    """volcano#3291, #3567: preemption ignores free nodes."""
    running = a_running_work(node="gpu-1", option=ON_GPU, left=500)
    found = decisions(a_request("urgent", ON_GPU, deadline_in=40), nodes=(GPU_NODE, a_node("gpu-2", gpu=1)), running=(running,))

    assert [a.node for a in found["urgent"].assignments] == ["gpu-2"]
    assert "t" not in found


def test_a_deadline_that_can_not_be_met_is_refused_before_a_device_is_used() -> None:
    """kubernetes#111948, jobset#1186: the time limit of a Job runs while its pods are pending, and JobSet has none."""
    world = World()
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 30.0})
    world.job("in-vain", at=0.1, accelerator="gpu", deadline_at=20, deadlinePolicy="Firm")
    world.run(until=5)

    assert (world.status("in-vain")["reason"], world.created("in-vain")) == ("DeadlineInfeasible", 0)


def test_a_deadline_covers_the_time_in_the_queue() -> None:
    """argo-workflows#6426, #11977, #3445: what is only queued can't be cancelled."""
    world = World(scripts={"runs": Script(work=300.0)})
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 300.0})
    world.job("runs", at=0.1, accelerator="gpu", priority=10)
    world.job("queued", at=0.3, accelerator="gpu", items=3, deadline_at=100, deadlinePolicy="Firm")
    world.run(until=120)

    assert (world.status("queued")["reason"], world.created("queued")) == ("DeadlineInfeasible", 0)


def test_energy_decides_among_places_that_are_in_time() -> None:
    """KAI-Scheduler#1717: energy is wanted as a signal for placement."""
    both = a_request("n", an_option("cpu", seconds=40), an_option("gpu", seconds=12, gpu=1), deadline_in=60)

    assert decisions(both)["n"].assignments[0].accelerator == "cpu"
    unweighted = CostWeights(alpha=0.0, beta=0.0, early=1.0)
    assert decisions(both, weights=unweighted)["n"].assignments[0].accelerator == "gpu"


# The table.

REPORTS = (ROOT / "docs" / "scheduling-reports.md").read_text()
ROWS = [line for line in REPORTS.splitlines() if line.startswith("| ") and "`test_" in line]


def test_every_row_of_the_anchor_has_one_in_the_table() -> None:
    # Twenty-four of the anchor, four that came with manifests as users write them, and those of what fails.
    assert len(ROWS) == 28 + 24


@pytest.mark.parametrize(("file", "test"), re.findall(r"(\w+/\w+): `(test_\w+)`", REPORTS))
def test_a_test_that_the_table_names_is_there(file: str, test: str) -> None:
    folder, name = file.split("/")
    (path,) = [*ROOT.glob(f"tests/{folder}/**/test_{name}.py"), *ROOT.glob(f"tests/unit/{folder}/test_{name}.py")]

    assert re.search(rf"^(async )?def {test}\(", path.read_text(), re.MULTILINE)


def test_the_table_names_every_test_of_this_file() -> None:
    here = Counter(re.findall(r"^def (test_\w+)\(", Path(__file__).read_text(), re.MULTILINE))
    about_the_table = {"test_every_row_of_the_anchor_has_one_in_the_table", "test_a_test_that_the_table_names_is_there",
                       "test_the_table_names_every_test_of_this_file"}  # fmt: skip

    assert set(here) - about_the_table <= set(re.findall(r"`(test_\w+)`", REPORTS))
