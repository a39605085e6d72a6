"""Room that is kept for large work: where it is free soonest, and who may use it until then."""

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.scheduling.backfill import Reservation, reserve
from inference_operator.scheduling.node_capacity import NodeInfo
from inference_operator.scheduling.requirements import pod_requirements
from tests.builders import a_node

LARGE = pod_requirements((("cpu", 2000),))
SMALL = pod_requirements((("cpu", 1000),))


def a_slot(name: str = "n", *, free: int = 0) -> NodeInfo:
    return NodeInfo(a_node(name, cpu="8"), {"cpu": free})


def ends(*found: tuple[float, int]) -> list[tuple[float, dict[str, int]]]:
    return [(at, {"cpu": cpu}) for at, cpu in sorted(found)]


def test_room_is_kept_where_enough_is_free_soonest() -> None:
    workers = [a_slot("late", free=1000), a_slot("soon"), a_slot("never", free=1000)]
    kept = reserve(LARGE, 3, workers, {"late": ends((60, 1000)), "soon": ends((50, 1000), (20, 1000))}, latest=100)

    assert kept is not None
    assert (kept.node_info.node.name, kept.at, kept.rank, kept.spare) == ("soon", 50, 3, {"cpu": 0})


def test_room_that_comes_too_late_is_not_kept() -> None:
    assert reserve(LARGE, 0, [a_slot()], {"n": ends((50, 2000))}, latest=49) is None


def test_what_ranks_behind_may_start_if_it_is_done_by_then_or_both_fit() -> None:
    kept = Reservation(a_slot(), at=30, rank=1, spare={"cpu": 1000})

    assert kept.admits(LARGE, 30, rank=2)
    assert not kept.admits(LARGE, 31, rank=2)
    assert kept.admits(LARGE, 31, rank=1)
    assert kept.admits(SMALL, 31, rank=2)
    kept.admitted(SMALL, 31, rank=2)
    assert not kept.admits(SMALL, 31, rank=2)


def test_who_is_done_in_time_uses_nothing_up() -> None:
    kept = Reservation(a_slot(), at=30, rank=1, spare={"cpu": 1000})
    kept.admitted(SMALL, 30, rank=2)
    kept.admitted(SMALL, 99, rank=0)

    assert kept.spare == {"cpu": 1000}


@given(
    free=st.lists(st.integers(0, 3000), min_size=1, max_size=4),
    found=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100), st.integers(0, 2000)), max_size=12),
)
def test_no_node_has_room_sooner(free: list[int], found: list[tuple[int, float, int]]) -> None:
    workers = [a_slot(f"n{i}", free=cpu) for i, cpu in enumerate(free)]
    by_node = {f"n{i}": ends(*((at, cpu) for node, at, cpu in found if node == i)) for i in range(len(free))}

    def room(node: int, at: float) -> int:
        return free[node] + sum(given["cpu"] for end, given in by_node[f"n{node}"] if end <= at)

    times = [at for i in range(len(free)) for at, _ in by_node[f"n{i}"] if room(i, at) >= 2000]
    kept = reserve(LARGE, 0, workers, by_node, latest=1000)

    assert (kept.at if kept is not None else None) == (min(times) if times else None)
    if kept is not None:
        assert kept.spare["cpu"] == room(int(kept.node_info.node.name[1:]), kept.at) - 2000 >= 0
