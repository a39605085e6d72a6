"""Tenants as Envoy is told of them: nothing without them, parts of quotas that come to the whole, and no code of anybody's."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.gateway import messages
from inference_operator.gateway.door import Door
from inference_operator.gateway.lua_values import literal
from inference_operator.gateway.resources import resources
from inference_operator.gateway.snapshot import Backend, Service
from inference_operator.gateway.tenants import before_the_route, behind_the_route
from inference_operator.tenants import NO_TENANTS, Tenant, Tenants, Tokens, tenants_fault

SERVICE = Service("default", "m", "1", True, (Backend("10.0.0.1", "a"), Backend("10.0.0.2", "b"), Backend("10.0.0.3", "c", True)))
ROWS = Tenant("a", rows_per_second=10)


def door(*tenants: Tenant, **more: Any) -> Door:
    return Door(8080, 1 << 20, tenants=Tenants(enabled=True, key_file="/keys", list=tenants), **more)


def buckets(found: Door) -> dict[str, Any]:
    (quota,) = [one for one in before_the_route(found) if one["name"] == "quota"]
    config: Any = quota["typed_config"]
    return {one["entries"][0]["value"]: one["token_bucket"] for one in config["descriptors"]}


def test_without_tenants_the_listener_has_no_filter_for_them() -> None:
    off = Door(8080, 1 << 20, tenants=Tenants(list=(Tenant("a", requests_per_second=1),), key_file="/keys"))

    assert before_the_route(off) == [] and behind_the_route(off.tenants) == []
    plain, told = resources((SERVICE,), {}, Door(8080, 1 << 20)), resources((SERVICE,), {}, off)
    assert plain == told


@given(st.floats(0.001, 1e6), st.integers(1, 50), st.none() | st.integers(1, 10**6))
def test_the_envoys_parts_of_a_quota_come_to_the_whole(rate: float, envoys: int, burst: int | None) -> None:
    bucket = buckets(door(Tenant("a", requests_per_second=rate, request_burst=burst), envoys=envoys))["a"]
    seconds = float(bucket["fill_interval"].removesuffix("s"))

    assert seconds >= 0.05
    assert bucket["tokens_per_fill"] / seconds * envoys == pytest.approx(rate, rel=1e-4)
    assert (burst or rate) <= bucket["max_tokens"] * envoys < (burst or rate) + envoys


def test_only_tenants_with_a_quota_of_requests_have_a_bucket() -> None:
    assert buckets(door(Tenant("a", requests_per_second=5), Tenant("b"))).keys() == {"a"}
    assert all(one["name"] != "quota" for one in before_the_route(door(Tenant("b"))))


def test_a_route_counts_its_workers_only_for_quotas_that_these_keep() -> None:
    def counts(found: Door) -> list[Any]:
        table: Any = messages.unpacked(messages.ROUTES, resources((SERVICE,), {}, found)[messages.ROUTES]["models"].data)
        entries = table["virtual_hosts"][0]["matcher"]["matcher_tree"]["exact_match_map"]["map"]
        return [entry["value"]["action"]["typed_config"].get("metadata") for entry in entries]

    # One of three drains.
    assert counts(door(ROWS)) == [{"filter_metadata": [{"key": "told", "value": {"workers": 2.0}}]}] * 4
    assert counts(door(Tenant("a", requests_per_second=5))) == [None] * 4


def test_what_workers_do_changes_no_filter_and_so_fills_no_bucket() -> None:
    found = door(ROWS, Tenant("b", requests_per_second=5))
    before, after = (resources(services, {}, found)[messages.LISTENER] for services in ((), (SERVICE,)))

    assert before == after


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "nil"),
        (True, "true"),
        (3, "3"),
        ({"a": [1, "b"]}, '{["a"] = {1, "b"}}'),
        ('"]] .. os.exit() --\n', '"\\034\\093\\093\\032\\046\\046\\032os\\046exit\\040\\041\\032\\045\\045\\010"'),
        ("é", '"\\195\\169"'),
    ],
)
def test_what_the_settings_say_is_never_code(value: object, written: str) -> None:
    assert literal(value) == written


def test_what_has_no_form_in_lua_is_a_fault_at_once() -> None:
    with pytest.raises(TypeError, match="object"):
        literal(object())


TOKENS = Tokens("https://issuer", ("gateway",), key_set_file="/set")


@pytest.mark.parametrize(
    ("tenants", "why"),
    [
        (Tenants(enabled=True), "nobody could be known"),
        (Tenants(enabled=True, key_file="/keys", list=(Tenant("A"),)), "small letters"),
        (Tenants(enabled=True, key_file="/keys", list=(Tenant("a;weight=9"),)), "small letters"),
        (Tenants(enabled=True, key_file="/keys", list=(Tenant("a"), Tenant("a"))), "the name a is there twice"),
        (Tenants(enabled=True, key_file="/keys", list=(Tenant("a", namespaces=()),)), "name namespaces"),
        (Tenants(enabled=True, key_file="/keys", list=(Tenant("a", claims=("a",)),)), "name the tokens' issuer"),
        (Tenants(enabled=True, key_file="/keys", list=(Tenant("a", certificates=("CN:a",)),)), "name their authority"),
        (Tenants(enabled=True, key_file="/keys", list=(Tenant("a", request_burst=5),)), "needs requestsPerSecond"),
        (Tenants(enabled=True, certificate_folder="/ca", list=(Tenant("a", certificates=("a",)),)), "CN:NAME"),
        (Tenants(enabled=True, tokens=Tokens("https://issuer")), "needs audiences"),
        (
            Tenants(enabled=True, tokens=TOKENS, list=(Tenant("a", claims=("x",)), Tenant("b", claims=("x",)))),
            "claim x is there twice",
        ),
    ],
)
def test_a_list_that_would_let_in_the_wrong_ones_is_refused_with_the_cure(tenants: Tenants, why: str) -> None:
    assert why in (tenants_fault(tenants, tls=True) or "")


def test_a_list_that_can_be_used_and_one_that_is_off_have_no_fault() -> None:
    known = Tenants(enabled=True, tokens=TOKENS, list=(Tenant("a", claims=("x",)),))
    certified = Tenants(enabled=True, certificate_folder="/ca")

    assert tenants_fault(known, tls=False) is None and tenants_fault(NO_TENANTS, tls=False) is None
    assert tenants_fault(certified, tls=True) is None and "certificates need TLS" in (tenants_fault(certified, tls=False) or "")


def test_only_a_log_makes_workers_and_routes_say_what_they_have() -> None:
    """Else news of a digest would be news for every Envoy."""
    loaded = Service("default", "m", "1", True, (Backend("10.0.0.1", "a", digest="sha256:1"),))
    other = Service("default", "m", "1", True, (Backend("10.0.0.1", "a", digest="sha256:2"),))
    off, on = Door(8080, 1 << 20), Door(8080, 1 << 20, audit=True)

    assert resources((loaded,), {}, off) == resources((other,), {}, off)
    changed = {kind for kind, found in resources((loaded,), {}, on).items() if found != resources((other,), {}, on)[kind]}
    assert changed == {messages.ENDPOINTS}
