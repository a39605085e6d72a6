"""Whom a request is for, as a gateway says it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.batching.tenants import Tenant
from inference_worker.errors import RequestError
from inference_worker.serve.tenant_header import tenant_of


@pytest.mark.parametrize(
    ("text", "tenant"),
    [
        ("gold", Tenant("gold")),
        ("gold;weight=3", Tenant("gold", weight=3)),
        ("gold;priority=5", Tenant("gold", priority=5)),
        ("a@b.example ; rows=500; device=0.25;concurrent=8;weight=1000", Tenant("a@b.example", 1000, 500.0, 0.25, 8)),
    ],
)
def test_a_name_and_what_the_tenant_may_have(text: str, tenant: Tenant) -> None:
    assert tenant_of(text) == tenant


@pytest.mark.parametrize(
    "text",
    ["", ";weight=3", "gold;weight=0", "gold;weight=1001", "gold;weight=1.5", "gold;rows=-1", "gold;rows=nan", "gold;rows=1e9",
     "gold;rows=inf", "gold;tier=1", "gold;weight=1;weight=2", "gold;concurrent=0", "gold;rows=", "g\u00f6ld", "a\x00b", "x" * 257],
)  # fmt: skip
def test_what_is_no_tenant_is_refused_with_what_to_say(text: str) -> None:
    with pytest.raises(RequestError, match="inference-tenant") as refused:
        tenant_of(text)

    assert refused.value.status == 400


@given(st.text(max_size=300))
def test_any_text_is_a_tenant_or_a_refusal(text: str) -> None:
    try:
        tenant = tenant_of(text)
    except RequestError:
        return
    assert tenant.name and 1 <= tenant.weight <= 1000
