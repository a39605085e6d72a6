"""Frames of a stream: answered again while the scene is like the one that was computed, and never below the bound."""

from __future__ import annotations

import asyncio
import re
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_protocol.messages import FrameReuse
from inference_worker.cache import answers
from inference_worker.cache.counts import Kind
from tests.unit.worker.cache.cached import Cached, a_cached, binary, mark_of
from tests.unit.worker.cache.test_similarity import least_by_formula, picture, with_noise
from tests.unit.worker.scripted_engines import Formula, spec

STILL = picture(64)
MARK = re.compile(r"reuse; similarity=(0\.\d{4}); age=(\d+\.\d)")


def mean(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1).mean(axis=1, keepdims=True).astype(np.float32)


def an_engine() -> Formula:
    shape = (None, 64, 64, 3)
    return Formula(mean, inputs=(spec("x", shape, 0, "UINT8"),), outputs=(spec("y", (None, 1)),))


async def a_stream(**frames: float) -> tuple[Formula, Cached]:
    engine = an_engine()
    return engine, await a_cached(engine, frames=FrameReuse(**frames))  # type: ignore[arg-type]


async def seen(cached: Cached, frame: np.ndarray, stream: str = "camera-1", **headers: str) -> str:
    """Send a frame and wait until it is kept, if it was computed; the mark of its answer."""
    body, more = binary(frame[None], "UINT8", **({"stream_id": stream} if stream else {}))
    reply = await cached.infer(body, **more, **headers)
    assert reply.status == 200, reply.body
    while cached.cache._background._tasks:
        await asyncio.sleep(0.001)
    return mark_of(reply)


async def test_a_still_scene_is_computed_once_and_its_answers_are_marked() -> None:
    engine, cached = await a_stream()

    marks = [await seen(cached, with_noise(STILL, 1, seed)) for seed in range(20)]

    assert marks[0] == "" and len(engine.sizes) == 1
    found = [MARK.fullmatch(mark) for mark in marks[1:]]
    assert all(match is not None and float(match[1]) >= 0.95 for match in found)
    assert cached.results == {"miss": 1, "reuse": 19}


async def test_a_scene_that_changes_slowly_does_not_drift_away_from_its_answer() -> None:
    """Each frame is like the one before it, and the last is not like the first."""
    engine, cached = await a_stream()
    other = picture(64)[::-1]
    frames = [(STILL * (1 - part) + other * part).astype(np.uint8) for part in np.linspace(0, 1, 40)]
    computed: list[np.ndarray] = []

    for frame in frames:
        if mark := await seen(cached, frame):
            match = MARK.fullmatch(mark)
            assert match is not None and float(match[1]) <= least_by_formula(computed[-1], frame, 255) + 1e-6
            assert least_by_formula(computed[-1], frame, 255) >= 0.95
        else:
            computed.append(frame)

    assert 2 <= len(computed) == len(engine.sizes) < len(frames)


@given(noises=st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, 8.0]), min_size=2, max_size=6), bound=st.sampled_from([0.9, 0.95]))
async def test_nothing_below_the_bound_is_used_again(noises: list[float], bound: float) -> None:
    engine, cached = await a_stream(similarity=bound)
    computed = np.zeros((0,))

    for number, noise in enumerate(noises):
        frame = with_noise(STILL, noise, number)
        if await seen(cached, frame):
            assert least_by_formula(computed, frame, 255) >= bound
        else:
            computed = frame
    assert len(engine.sizes) >= 1


@pytest.mark.parametrize(
    ("stream", "headers"),
    [("camera-2", {}), ("camera-1", {"inference-tenant": "other"}), ("", {"inference-stream-id": "camera-3"})],
)
async def test_streams_and_tenants_have_nothing_in_common(stream: str, headers: dict[str, str]) -> None:
    _, cached = await a_stream()
    await seen(cached, STILL)

    marks = [await seen(cached, with_noise(STILL, 1, seed), stream, **headers) for seed in (1, 2)]

    assert marks[0] == "" and marks[1].startswith("reuse")


async def test_a_stream_may_be_named_by_header_or_by_parameter() -> None:
    _, cached = await a_stream()

    await seen(cached, STILL)

    assert (await seen(cached, STILL, "", **{"inference-stream-id": "camera-1"})).startswith("reuse")


async def test_another_question_about_the_frame_is_another_stream() -> None:
    shape = (None, 64, 64, 3)
    inputs = (spec("x", shape, 0, "UINT8"), spec("threshold", (None, 1)))
    engine = Formula(lambda x, threshold: mean(x) + threshold, inputs=inputs, outputs=(spec("y", (None, 1)),))
    cached = await a_cached(engine, frames=FrameReuse())
    head = (
        b'{"inputs":[{"name":"x","datatype":"UINT8","shape":[1,64,64,3],"parameters":{"binary_data_size":12288}},'
        b'{"name":"threshold","datatype":"FP32","shape":[1,1],"data":[%d]}],"parameters":{"stream_id":"a"}}'
    )

    async def ask(threshold: int) -> str:
        asked = head % threshold
        reply = await cached.infer(asked + STILL.tobytes(), **{"inference-header-content-length": str(len(asked))})
        while cached.cache._background._tasks:
            await asyncio.sleep(0.001)
        return mark_of(reply)

    assert [await ask(1), await ask(2)] == ["", ""]
    assert (await ask(1)).startswith("reuse")


async def test_an_answer_grows_old() -> None:
    engine, cached = await a_stream(max_age_seconds=2.0)
    now = cached.cache._clock()
    cached.cache._clock = lambda: now
    await seen(cached, STILL)
    cached.cache._clock = lambda: now + 1.5
    assert "age=1.5" in await seen(cached, STILL)
    cached.cache._clock = lambda: now + 2.1

    assert await seen(cached, STILL) == ""
    assert len(engine.sizes) == 2


async def test_streams_are_bounded_in_number_and_in_bytes() -> None:
    _, few = await a_stream(max_streams=3)
    _, small = await a_stream(max_bytes=400_000)

    for number in range(8):
        await seen(few, STILL, f"camera-{number}")
        await seen(small, STILL, f"camera-{number}")

    assert few.counts.occupied()[Kind.FRAMES].entries == 3
    assert 0 < small.counts.occupied()[Kind.FRAMES].bytes <= 400_000
    assert (await seen(few, STILL, "camera-7")).startswith("reuse") and await seen(few, STILL, "camera-0") == ""


async def test_without_frames_in_its_job_a_stream_goes_by_its_bytes() -> None:
    cached = await a_cached(an_engine())

    assert [await seen(cached, STILL), await seen(cached, STILL), await seen(cached, with_noise(STILL, 1, 1))] == ["", "hit", ""]


async def test_of_two_frames_under_way_the_later_one_is_kept() -> None:
    _, cached = await a_stream()
    bodies = [binary(frame[None], "UINT8", stream_id="a") for frame in (STILL, picture(64)[::-1].copy())]

    await asyncio.gather(*(cached.infer(body, **headers) for body, headers in bodies))
    while cached.cache._background._tasks:
        await asyncio.sleep(0.001)

    assert (await seen(cached, picture(64)[::-1].copy(), "a")).startswith("reuse")


async def test_frames_whose_callers_are_answered_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is quicker than the keeping would fill the memory with frames that no budget counts."""
    slow, most = threading.Event(), 0

    def waits(*_: object) -> None:
        assert slow.wait(20)

    monkeypatch.setattr(answers, "scene_of", waits)
    _, cached = await a_stream()
    # Comparing goes by the threads that are busy keeping; frames as small as this one are compared at once.
    monkeypatch.setattr(answers, "_INLINE_VALUES", 1 << 20)
    body, headers = binary(STILL[None], "UINT8", stream_id="a")
    for _ in range(30):
        assert (await cached.infer(body, **headers)).status == 200
        most = max(most, len(cached.cache._background._tasks))
    slow.set()
    while cached.cache._background._tasks:
        await asyncio.sleep(0.001)

    assert most == 8 and cached.cache._keeping == 0
