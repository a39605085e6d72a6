"""What is remembered of a pure function's calls: the same objects, and no other however alike."""

from inference_operator.runtime.memo import by_identity


def test_the_same_objects_are_reckoned_once_and_equal_ones_anew() -> None:
    calls: list[list[int]] = []

    @by_identity(8)
    def total(numbers: list[int]) -> int:
        calls.append(numbers)
        return sum(numbers)

    one, like_it = [1, 2], [1, 2]

    assert [total(one), total(one), total(like_it), total(one)] == [3, 3, 3, 3]
    assert len(calls) == 2


def test_the_call_that_is_longest_ago_is_forgotten_first() -> None:
    calls: list[object] = []

    @by_identity(2)
    def note(value: object) -> None:
        calls.append(value)

    a, b, c = object(), object(), object()
    for value in (a, b, a, c, a, b):
        note(value)

    assert calls == [a, b, c, b]
