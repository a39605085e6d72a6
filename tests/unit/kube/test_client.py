"""What the client says of an API server that doesn't answer."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from inference_operator.errors import RetryableError
from inference_operator.kube.client import ApiSession, Kube
from inference_operator.kube.connection import Connection
from inference_operator.runtime.bucket import TokenBucket


class Silent:
    """A session in which nobody answers."""

    @contextlib.asynccontextmanager
    async def request(self, *_: Any, **__: Any) -> AsyncIterator[None]:
        raise TimeoutError
        yield


async def test_an_error_without_words_is_told_by_its_name() -> None:
    """`an event is lost: POST …: ` said nothing of why."""
    kube = Kube(Connection("https://api", None), cast(ApiSession, Silent()), TokenBucket(10, 10, lambda: 0.0))

    with pytest.raises(RetryableError, match="GET /api: TimeoutError"):
        await kube.get("/api")
