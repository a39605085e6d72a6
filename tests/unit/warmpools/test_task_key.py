"""The operator's key: the same for every replica and every restart, whoever makes it."""

import asyncio
import base64
from typing import Any

import pytest

from inference_operator.errors import RetryableError
from inference_operator.state.objects import Key
from inference_operator.warmpools.task_key import TaskKeySecret
from tests.simulation.api import At, SimulatedApi
from tests.simulation.virtual_time import run

POD = Key("team", "m-1")
SECRET = At("secrets", "system", "key")


def opened(*, replicas: int = 1, data: dict[str, Any] | None = None) -> list[TaskKeySecret]:
    async def main() -> list[TaskKeySecret]:
        api = SimulatedApi()
        # As the chart makes it: without data, which is the operator's.
        api.put(SECRET, {"metadata": {"name": "key"}, **({"data": data} if data is not None else {})})
        task_keys = [TaskKeySecret(api, "system", "key") for _ in range(replicas)]
        await asyncio.gather(*(task_key_secret.open() for task_key_secret in task_keys))
        return task_keys

    return run(main())


def test_replicas_that_race_have_the_same_key() -> None:
    first, second = opened(replicas=2)

    assert first.token(POD) == second.token(POD)
    assert first.digest(POD) == second.digest(POD)


def test_the_key_that_is_there_is_taken() -> None:
    data = {"task-key": base64.b64encode(b"k" * 32).decode()}

    assert opened(data=data)[0].token(POD) == opened(data=data)[0].token(POD)
    assert opened(data=data)[0].token(POD) != opened()[0].token(POD)


def test_tokens_differ_by_pod_and_their_digests_do_not_tell_them() -> None:
    (task_key_secret,) = opened()
    pods = [POD, Key("team", "m-2"), Key("other", "m-1")]

    assert len({task_key_secret.token(pod) for pod in pods} | {task_key_secret.digest(pod) for pod in pods}) == 6


@pytest.mark.parametrize("data", [{"task-key": ""}, {"other": "eA=="}, {"task-key": "not base64!"}])
def test_a_damaged_secret_says_what_to_do(data: dict[str, Any]) -> None:
    with pytest.raises(RetryableError, match="take its data away"):
        opened(data=data)


def test_a_key_that_was_taken_away_is_made_anew() -> None:
    assert opened(data={})[0].token(POD)


def test_a_secret_that_is_missing_is_left_to_the_chart() -> None:
    async def main() -> None:
        api = SimulatedApi()
        with pytest.raises(RetryableError, match="no Secret key; an upgrade of the release makes it"):
            await TaskKeySecret(api, "system", "key").open()
        assert not api.requests

    run(main())


def test_before_it_is_open_there_are_no_tokens() -> None:
    async def main() -> None:
        with pytest.raises(RetryableError):
            TaskKeySecret(SimulatedApi(), "system", "key").token(POD)

    run(main())
