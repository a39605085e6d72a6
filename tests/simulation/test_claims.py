"""Claims that one node or one pod can mount: nothing is spread, and every roll-out ends (kserve/kserve#3409)."""

from inference_operator.api import names
from tests.simulation.api import At, Raw
from tests.simulation.cluster import Script
from tests.simulation.world import World


def with_claim(mode: str, *, cpu: int = 4, pool: Raw | None = None) -> World:
    world = World(scripts={name: Script(work=10.0) for name in ("one", "two", "three")})
    for node in ("cpu-1", "cpu-2"):
        world.node(node, cpu=cpu)
    claim: Raw = {"metadata": {"name": "data"}, "spec": {"accessModes": [mode]}, "status": {"accessModes": [mode]}}
    world.at(0.0, lambda: world.api.put(At("persistentvolumeclaims", "default", "data"), claim))
    world.model(seconds={"cpu": 30.0}, pool=pool)
    return world


def nodes_of(world: World, name: str) -> set[str]:
    return {raw["spec"].get("nodeName", "") for raw in world.living(name)}


def revisions_of(world: World, name: str) -> set[str]:
    return {raw["metadata"]["labels"][names.LABEL_REVISION] for raw in world.living(name)}


def test_the_workers_of_a_service_share_the_node_of_their_disk() -> None:
    world = with_claim("ReadWriteOnce")
    world.job("web", batch=False, model="pvc://data/m.onnx", replicas=3)
    world.run(until=30)

    assert len(world.answering("web")) == 3
    assert len(nodes_of(world, "web")) == 1


def test_the_warm_workers_of_a_pool_share_the_node_of_their_disk_and_one_of_one_pod_is_alone() -> None:
    shared, alone = (
        with_claim("ReadWriteOnce", pool={"min": 3, "max": 3}),
        with_claim("ReadWriteOncePod", pool={"min": 2, "max": 2}),
    )
    for world in (shared, alone):
        world.run(until=30)

    assert (len(shared.answering("pool-m")), len(nodes_of(shared, "pool-m"))) == (3, 1)
    assert len(alone.answering("pool-m")) == 1
    (ready,) = alone.model_status()["warmPool"]["conditions"]
    assert "claim data with ReadWriteOncePod access mode" in ready["message"]


def test_batches_on_one_disk_share_its_node_while_they_run() -> None:
    world = with_claim("ReadWriteOnce")
    for name in ("one", "two", "three"):
        world.job(name)
    seen: list[set[str]] = []
    for second in range(5, 15):
        world.at(second, lambda: seen.append(set().union(*(nodes_of(world, name) for name in ("one", "two", "three")))))
    world.run(until=60)

    assert max(map(len, seen)) == 1
    assert {world.status(name)["phase"] for name in ("one", "two", "three")} == {"Succeeded"}


def rolled_out(mode: str, *, cpu: int = 4) -> World:
    world = with_claim(mode, cpu=cpu)
    world.job("web", batch=False, model="pvc://data/m.onnx", resources={"requests": {"cpu": "3"}})
    world.change("web", at=20, template={"env": [{"name": "APP_A", "value": "b"}]})
    return world.run(until=80)


def test_a_roll_out_on_a_disk_with_room_for_one_worker_ends_on_its_node() -> None:
    world = rolled_out("ReadWriteOnce")

    assert world.created("web") == 2
    assert (len(world.answering("web")), len(revisions_of(world, "web"))) == (1, 1)


def test_a_roll_out_on_a_disk_with_room_for_both_keeps_answering() -> None:
    world = with_claim("ReadWriteOnce", cpu=8)
    world.job("web", batch=False, model="pvc://data/m.onnx", resources={"requests": {"cpu": "3"}})
    world.watch_answering("web", since=15)
    world.change("web", at=20, template={"env": [{"name": "APP_A", "value": "b"}]})
    world.run(until=80)

    assert world.least_answering["web"] == 1
    assert (world.created("web"), len(nodes_of(world, "web"))) == (2, 1)


def test_a_roll_out_ends_where_the_disks_node_has_room_for_fewer_than_are_wanted() -> None:
    """Nobody made room while a worker was missing, so the old revision stayed for ever."""
    world = with_claim("ReadWriteOnce", cpu=7)
    world.job("web", batch=False, model="pvc://data/m.onnx", replicas=3, resources={"requests": {"cpu": "3"}})
    world.watch_answering("web", since=15)
    world.change("web", at=20, template={"env": [{"name": "APP_A", "value": "b"}]})
    world.run(until=120)

    assert (world.created("web"), len(world.answering("web")), len(revisions_of(world, "web"))) == (4, 2, 1)
    assert world.least_answering["web"] == 1


def test_a_roll_out_on_a_claim_of_one_pod_takes_the_old_worker_away_first() -> None:
    world = rolled_out("ReadWriteOncePod", cpu=8)

    assert world.created("web") == 2
    assert world.most_workers["web"] == 1
    assert len(world.answering("web")) == 1


def test_of_two_batches_on_a_claim_of_one_pod_the_second_waits_and_names_it() -> None:
    world = with_claim("ReadWriteOncePod")
    world.job("one")
    world.job("two", at=1.0)
    told: list[str] = []
    world.at(5.0, lambda: told.extend(c["message"] for c in world.status("two")["conditions"] if c["type"] == "Placed"))
    world.run(until=60)

    assert "due to claim data with ReadWriteOncePod access mode, in use by one-" in told[0]
    assert {world.status(name)["phase"] for name in ("one", "two")} == {"Succeeded"}


def test_an_ended_batch_frees_a_claim_that_is_deleted() -> None:
    world = with_claim("ReadWriteOnce")
    world.job("one")

    def deleted() -> None:
        at = At("persistentvolumeclaims", "default", "data")
        raw = world.api.objects[at]
        world.api.put(at, {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": "2026-04-02T12:00:30Z"}})

    world.at(30.0, lambda: None if world.workers("one") else 1 / 0)
    world.at(31.0, deleted)
    world.run(until=40)

    assert (world.status("one")["phase"], world.workers("one")) == ("Succeeded", [])
