"""How urgent a request is, and how urgent its tenant may be."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from inference_worker.batching.queue import NEVER
from inference_worker.serve.ask import Ask
from inference_worker.serve.inference import Arrival, batched


@pytest.mark.parametrize(
    ("asked", "tenant", "priority"),
    [
        (None, None, 100),
        (1, None, 1),
        (1, "a", 100),
        (1, "a;priority=1", 1),
        (1, "a;priority=100", 100),
        (200, "a;priority=100", 200),
        (1, "a;priority=5", 5),
    ],
)
def test_a_request_is_as_urgent_as_it_says_and_its_tenant_may_be(asked: int | None, tenant: str | None, priority: int) -> None:
    seen: dict[str, Any] = {}
    batcher = SimpleNamespace(submit=lambda *_, **how: seen.update(how))
    arrival = Arrival(0.0, headers={} if tenant is None else {"inference-tenant": tenant})

    batched(cast("Any", SimpleNamespace(batcher=batcher)), Ask("", {}, (), None, asked), arrival, NEVER, lambda *_: None)

    assert seen["priority"] == priority
