"""What the worker asks of an engine, asked of each one there is (inference_worker.engines.registry.ENGINES)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from inference_protocol.reasons import WorkerReason
from inference_worker.engines.engine import Cancellation, RunCancelledError, on_cpu
from inference_worker.errors import WorkerError
from inference_worker.warmup import warm_up
from tests.process.engines.makers import PROVIDER, TWINS, Maker
from tests.process.harness import CPU

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_worker.engines.engine import Engine

    Get = Callable[[str], Engine]


def x(rows: int, width: int = 2, *, seed: int = 1, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(dtype)


@pytest.mark.parametrize("name", sorted(TWINS))
def test_it_describes_what_the_model_takes_and_gives(name: str, engine: Get) -> None:
    made, twin = engine(name), TWINS[name]

    assert [(s.name, s.datatype, tuple(s.wire_shape)) for s in made.inputs] == list(twin.inputs)
    assert [(s.name, s.datatype) for s in made.outputs] == [(n, d) for n, d, _ in twin.outputs]
    assert made.rows == (2 if name == "fixed" else None)
    assert all(s.batch_axis == 0 for s in made.inputs)


@pytest.mark.parametrize("rows", [1, 3, 17, 0])
def test_answers_are_the_models(rows: int, engine: Get) -> None:
    a, b = x(rows), x(rows, seed=2)

    answers = engine("add").run({"a": a, "b": b})

    assert set(answers) == {"total"}
    np.testing.assert_array_equal(answers["total"], a + b)


def test_types_and_ranks_come_as_the_model_has_them(engine: Get) -> None:
    rows = x(5, 4)
    half = x(3, dtype=np.float16)

    assert (engine("label").run({"x": rows})["class"] == rows.argmax(1)).all()
    assert engine("label").run({"x": rows})["class"].dtype == np.int64
    assert (engine("half").run({"x": half})["y"] == half).all()
    assert engine("total").run({"x": np.ones((2, 2), np.float32)})["total"].shape == ()


def test_only_the_outputs_that_are_wanted_come(engine: Get) -> None:
    rows = x(2)

    assert set(engine("two").run({"x": rows})) == {"same", "negated"}
    only = engine("two").run({"x": rows}, ("negated",))

    assert set(only) == {"negated"}
    np.testing.assert_array_equal(only["negated"], -rows)


def test_what_came_by_the_network_is_not_to_be_written_to_and_need_not_be(engine: Get) -> None:
    rows = np.frombuffer(x(4).tobytes(), np.float32).reshape(4, 2)

    np.testing.assert_array_equal(engine("two").run({"x": rows})["negated"], -rows)


def test_feeds_that_do_not_fit_are_refused_and_the_next_are_answered(engine: Get) -> None:
    made = engine("add")

    with pytest.raises(ValueError):
        made.run({"a": x(2, 3), "b": x(2, 3)})

    assert made.run({"a": x(2), "b": x(2)})["total"].shape == (2, 2)
    assert made.problem is None


def test_threads_may_run_it_at_once(engine: Get) -> None:
    made = engine("matmul")
    inputs = [x(1 + n % 5, 4, seed=n) for n in range(40)]
    expected = [made.run({"x": rows})["y"] for rows in inputs]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda rows: made.run({"x": rows})["y"], inputs))

    for answer, wanted in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer, wanted, rtol=1e-5)


def test_a_run_that_is_cancelled_ends_or_answers_and_hurts_no_other(engine: Get) -> None:
    made, cancellation = engine("add"), Cancellation()
    cancellation.cancel()

    try:
        made.run({"a": x(2), "b": x(2)}, (), cancellation)
    except RunCancelledError:
        pass

    assert made.run({"a": x(2), "b": x(2)})["total"].shape == (2, 2)
    assert made.problem is None


def test_it_says_what_computes_and_how_much_memory_that_has(engine: Get) -> None:
    made = engine("add")

    assert on_cpu(made) == (PROVIDER == CPU)
    assert made.memory_bytes > 20 << 20


def test_the_warm_up_finds_its_rows(engine: Get) -> None:
    warm = warm_up(engine("matmul"), 8)

    assert warm.layout.outputs == {"y": 0}
    assert set(warm.profile.measured) == {1, 2, 4, 8}


def test_two_of_one_file_are_two(maker: Maker) -> None:
    first, second = maker.open("add"), maker.open("add")
    feeds = {"a": x(2), "b": x(2)}

    first.close()

    assert second.run(feeds)["total"].shape == (2, 2)
    second.close()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\x00" * 4096, "is the file whole"),
    ],
)
def test_a_file_that_is_no_model_is_refused_with_a_reason(data: bytes, words: str, maker: Maker) -> None:
    with pytest.raises(WorkerError) as caught:
        maker.open_bytes(data, TWINS["add"].signature)

    assert caught.value.reason is WorkerReason.MODEL_CORRUPT
    assert words in caught.value.message
