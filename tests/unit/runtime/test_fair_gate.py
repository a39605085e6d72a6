"""Who is let in, in which order, and that nobody can take all the places."""

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.runtime.fair_gate import FairGate


class Visits:
    """Those who come in stay until they are told to go."""

    def __init__(self, most: int) -> None:
        self.gate: FairGate[str] = FairGate(most)
        self.came: list[str] = []
        self._tasks: list[tuple[str, asyncio.Task[None], asyncio.Event]] = []

    def come(self, keys: str) -> None:
        for key in keys:
            go = asyncio.Event()
            self._tasks.append((key, asyncio.create_task(self._visit(key, go)), go))

    async def _visit(self, key: str, go: asyncio.Event) -> None:
        async with self.gate.enter(key):
            self.came.append(key)
            await go.wait()

    async def settled(self) -> str:
        for _ in range(5):
            await asyncio.sleep(0)
        return "".join(self.came)

    def end(self, number: int, *, cancel: bool = False) -> None:
        _, task, go = self._tasks[number]
        go.set()
        if cancel:
            task.cancel()

    async def close(self) -> None:
        for _, task, _ in self._tasks:
            task.cancel()
        await asyncio.gather(*(task for _, task, _ in self._tasks), return_exceptions=True)


async def test_one_alone_leaves_half_of_the_places_to_whoever_comes() -> None:
    visits = Visits(8)
    visits.come("a" * 20)
    assert await visits.settled() == "aaaa"

    visits.come("b" * 2)
    assert await visits.settled() == "aaaabb"
    await visits.close()


async def test_who_waits_is_let_in_in_turn_by_key() -> None:
    visits = Visits(2)
    visits.come("aaaabbbccd")
    assert await visits.settled() == "ab"
    # By number: the first and second of a and of b leave.
    for number, came in ((0, "aba"), (4, "abab"), (1, "ababc"), (5, "ababcd")):
        visits.end(number)
        assert await visits.settled() == came
    await visits.close()


async def test_who_leaves_while_waiting_takes_no_place() -> None:
    visits = Visits(2)
    visits.come("aaa")
    assert await visits.settled() == "a"
    visits.end(1, cancel=True)
    visits.end(0)

    assert await visits.settled() == "aa"
    await visits.close()
    assert (visits.gate._taken, visits.gate._here, visits.gate._inside) == (0, Counter(), Counter())


@given(st.integers(1, 6), st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 30)), max_size=30))
def test_all_come_in_once_the_others_have_left(most: int, steps: list[tuple[str, bool, int]]) -> None:
    async def live() -> None:
        visits = Visits(most)
        for number, (key, cancel, gone) in enumerate(steps):
            visits.come(key)
            if gone <= number:
                visits.end(gone, cancel=cancel)
            await asyncio.sleep(0)
            assert visits.gate._taken == sum(visits.gate._inside.values()) <= most
        for number in range(len(steps)):
            visits.end(number)
        done = [task for _, task, _ in visits._tasks]
        await asyncio.wait_for(asyncio.gather(*done, return_exceptions=True), 60)
        assert (visits.gate._taken, visits.gate._here, visits.gate._inside) == (0, Counter(), Counter())

    asyncio.run(live())
