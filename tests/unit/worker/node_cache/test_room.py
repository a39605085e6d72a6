"""Which models give way: the least recently used, and nobody's fair share."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from inference_worker.node_cache.room import Kept, giving_way

NAMESPACES = ("a", "b", "c")
KEPT = st.lists(
    st.tuples(st.sets(st.sampled_from(NAMESPACES), min_size=1, max_size=2), st.integers(1, 50), st.integers(0, 20)), max_size=8
).map(lambda rows: [Kept(number, frozenset(names), size, float(used)) for number, (names, size, used) in enumerate(rows)])


def taken(kept: list[Kept]) -> Counter[str]:
    found = Counter[str]()
    for one in kept:
        found.update(dict.fromkeys(one.namespaces, one.size))
    return found


@given(kept=KEPT, held=st.integers(0, 30), more=st.integers(0, 80), limit=st.integers(1, 200))
def test_what_stays_fits_and_no_more_than_that_goes(kept: list[Kept], held: int, more: int, limit: int) -> None:
    dropped = giving_way(kept, "a", coming={"a": held}, more=more, limit=limit)
    if dropped is None:
        return
    sizes = {one.inode: one.size for one in kept}
    left = held + more + sum(sizes.values()) - sum(sizes[inode] for inode in dropped)

    assert left <= limit
    assert len(set(dropped)) == len(dropped)
    assert not dropped or left + sizes[dropped[-1]] > limit


@given(kept=KEPT, more=st.integers(0, 80), limit=st.integers(1, 200))
def test_who_keeps_to_a_fair_share_loses_nothing_to_others(kept: list[Kept], more: int, limit: int) -> None:
    share = limit / len({"a"}.union(*(one.namespaces for one in kept)))
    before = taken(kept)
    dropped = giving_way(kept, "a", coming={}, more=more, limit=limit) or ()
    after = taken([one for one in kept if one.inode not in dropped])

    for name in NAMESPACES[1:]:
        assert before[name] > share or after[name] == before[name]


@given(kept=KEPT, more=st.integers(0, 80), limit=st.integers(1, 200))
def test_who_is_above_its_share_takes_from_itself_alone(kept: list[Kept], more: int, limit: int) -> None:
    share = limit / len({"a"}.union(*(one.namespaces for one in kept)))
    dropped = giving_way(kept, "a", coming={}, more=more, limit=limit) or ()
    if taken(kept)["a"] + more > share:
        assert all(one.namespaces == {"a"} for one in kept if one.inode in dropped)


@given(kept=KEPT, more=st.integers(0, 80), limit=st.integers(1, 200))
def test_of_one_namespace_the_least_recently_used_go_first(kept: list[Kept], more: int, limit: int) -> None:
    alone = [Kept(one.inode, frozenset("a"), one.size, one.used) for one in kept]
    dropped = giving_way(alone, "a", coming={}, more=more, limit=limit)
    in_order = [one.inode for one in sorted(alone, key=lambda one: (one.used, one.inode))]

    assert (dropped is None) == (more > limit)
    assert dropped is None or list(dropped) == in_order[: len(dropped)]


def test_what_still_comes_takes_room_too() -> None:
    kept = [Kept(1, frozenset("a"), 40, 1.0)]

    assert giving_way(kept, "a", coming={}, more=50, limit=100) == ()
    assert giving_way(kept, "a", coming={"b": 30}, more=50, limit=100) == (1,)
    assert giving_way(kept, "a", coming={"b": 60}, more=50, limit=100) is None
