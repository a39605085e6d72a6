"""Which models a warm worker drops for another: those used longest ago, and only as many as it must."""

from hypothesis import given
from hypothesis import strategies as st

from inference_worker.guests import to_drop

SIZES = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 100))


@given(held=SIZES, needed=st.integers(1, 400), room=st.integers(400, 800))
def test_as_few_as_possible_go_the_longest_unused_first(held: dict[str, int], needed: int, room: int) -> None:
    dropped = to_drop(held, needed, room)

    assert dropped == list(held)[: len(dropped)]
    kept = sum(size for name, size in held.items() if name not in dropped)
    assert kept + needed <= room
    if dropped:
        assert kept + held[dropped[-1]] + needed > room


def test_nothing_is_dropped_for_nothing() -> None:
    assert to_drop({}, 10, 10) == []
    assert to_drop({"a": 5}, 5, 10) == []
