"""What routes say: whom they lead to and for which share, within the API's limits, and nothing of a worker but its models."""

import re
from dataclasses import replace
from math import gcd
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.gateway import ServeGateway
from inference_operator.gateway.gatewayapi.objects import Owned, Owner, refusals, says
from inference_operator.gateway.gatewayapi.routes import Doors, routes, weights
from inference_operator.gateway.snapshot import Backend, Service
from inference_operator.gateway.split import Split, splits
from inference_operator.state.objects import Key

PARENT = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra", "name": "public"}
DOORS = Doors((PARENT,), (PARENT,))
WORKER = Backend("10.0.0.1", "a")
STABLE = Service("team", "m", "1", True, (WORKER,), jobs=(Key("team", "stable"),))
CANARY = replace(STABLE, version="2", default=False, jobs=(Key("team", "canary"),), options=ServeGateway(traffic_percent=10))
OWNERS = {Key("team", name): Owner(f"uid-of-{name}", workers) for name, workers in (("stable", 2), ("canary", 1))}


def made(*services: Service, doors: Doors = DOORS) -> dict[tuple[str, str], Any]:
    return {(one.kind, one.key.name): one.manifest for one in routes(services, OWNERS, doors)}


def http(found: dict[tuple[str, str], Any], path: str) -> Any:
    """The rule for a path."""
    rules = [rule for (kind, _), one in found.items() if kind == "HTTPRoute" for rule in one["spec"]["rules"]]
    (rule,) = [rule for rule in rules if rule["matches"][0]["path"]["value"] == path and "headers" not in rule["matches"][0]]
    return rule


def shares(rule: Any) -> dict[str, int]:
    return {one["name"]: one["weight"] for one in rule["backendRefs"]}


def test_a_path_leads_to_its_model_and_loses_the_namespaces_name() -> None:
    rule = http(made(STABLE, CANARY), "/team/v2/models/m/versions/2")

    assert shares(rule) == {"canary": 1}
    (rewrite,) = rule["filters"]
    assert rewrite["urlRewrite"]["path"] == {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v2/models/m/versions/2"}


def test_callers_who_name_no_version_are_split_as_the_canary_says() -> None:
    found = made(STABLE, CANARY)
    grpc = [rule for (kind, _), one in found.items() if kind == "GRPCRoute" for rule in one["spec"]["rules"]]

    assert shares(http(found, "/team/v2/models/m")) == {"stable": 9, "canary": 1}
    assert [shares(rule) for rule in grpc] == [{"stable": 1}, {"stable": 9, "canary": 1}, {"canary": 1}]
    assert {match["method"]["method"][:5] for rule in grpc for match in rule["matches"]} == {"Model"}


def test_a_canary_without_a_worker_gets_nobody_who_names_no_version() -> None:
    assert shares(http(made(STABLE, replace(CANARY, backends=())), "/team/v2/models/m")) == {"stable": 1}


def test_jobs_of_one_version_share_it_by_their_workers() -> None:
    both = replace(STABLE, jobs=(Key("team", "a"), Key("team", "b")))

    assert weights(Split(((both, 100),)), {Key("team", "a"): 3, Key("team", "b"): 1}) == (
        (Key("team", "a"), 3),
        (Key("team", "b"), 1),
    )
    assert weights(Split(((both, 100),)), {}) == ((Key("team", "a"), 1), (Key("team", "b"), 1))


def test_a_mirror_gets_copies_and_no_answers() -> None:
    mirror = replace(CANARY, options=ServeGateway(mirror_percent=25))
    rule = http(made(STABLE, mirror), "/team/v2/models/m")

    assert shares(rule) == {"stable": 1}
    assert (
        rule["filters"][1]["requestMirror"]["backendRef"]["name"] == "canary"
        and rule["filters"][1]["requestMirror"]["percent"] == 25
    )


def test_with_a_domain_a_namespace_has_a_host_of_its_own() -> None:
    found = made(STABLE, doors=replace(DOORS, hostnames=("models.example.com",), domain="models.example.com"))

    hosts = {kind + name[-10:]: one["spec"]["hostnames"] for (kind, name), one in found.items()}
    assert sorted(hosts.values()) == [["models.example.com"]] * 2 + [["team.models.example.com"]] * 2
    (by_host,) = [one for (kind, name), one in found.items() if kind == "HTTPRoute" and name.endswith("-host")]
    assert [rule["matches"][0]["path"]["value"] for rule in by_host["spec"]["rules"]] == ["/v2/models/m/versions/1", "/v2/models/m"]


def test_with_a_picker_routes_lead_to_pools_and_the_picker_splits() -> None:
    found = made(STABLE, CANARY, doors=replace(DOORS, picker=True))
    refs = [ref for one in found.values() for rule in one["spec"]["rules"] for ref in rule["backendRefs"]]

    assert {kind for kind, _ in found} == {"HTTPRoute"}
    assert {ref["kind"] for ref in refs} == {"InferencePool"} and len({ref["name"] for ref in refs}) == 2
    assert all("port" not in ref for ref in refs)


def test_a_name_that_means_another_place_in_a_path_gets_no_route() -> None:
    assert not made(replace(STABLE, model=".."))


names = st.from_regex(r"[A-Za-z0-9._-]{1,60}", fullmatch=True)


@given(names, names, st.booleans())
def test_objects_have_valid_names_that_differ_by_version(model: str, version: str, picker: bool) -> None:  # noqa: FBT001
    service = replace(STABLE, model=model, version=version)
    found = routes(
        [service, replace(service, version=version + "x", default=False)], OWNERS, replace(DOORS, domain="a.b", picker=picker)
    )
    keys = [(one.kind, one.key.name) for one in found]

    assert len(set(keys)) == len(keys)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 63 for _, name in keys)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), min_size=1, max_size=30))
def test_weights_are_within_the_apis_limits_and_nobody_who_takes_requests_is_forgotten(given_: list[tuple[int, int]]) -> None:
    versions = [
        Service(
            "team",
            "m",
            f"{number:02}",
            number == 0,
            (WORKER,),
            jobs=(Key("team", f"job-{number}"),),
            options=ServeGateway(traffic_percent=percent or None),
        )
        for number, (_, percent) in enumerate(given_)
    ]
    (split,) = splits(versions)
    workers = {versions[number].jobs[0]: count for number, (count, _) in enumerate(given_)}

    found = weights(split, workers)

    assert 1 <= len(found) <= 16 and all(1 <= weight <= 1_000_000 for _, weight in found)
    assert gcd(*(weight for _, weight in found)) == 1
    if len(given_) <= 16:
        assert {job for job, _ in found} == {service.jobs[0] for service, percent in split.shares if percent}


def owned() -> Owned:
    return routes([STABLE], OWNERS, DOORS)[0]


def test_what_the_api_adds_as_defaults_is_no_difference_and_what_somebody_changed_is() -> None:
    wanted: Any = owned().manifest
    found = {**wanted, "status": {}, "metadata": {**wanted["metadata"], "generation": 1, "resourceVersion": "7"}}
    (rule, *others) = wanted["spec"]["rules"]
    defaulted = {**found, "spec": {**wanted["spec"], "rules": [{**rule, "name": "added"}, *others]}}

    assert says(found, wanted) and says(defaulted, wanted)
    assert not says({**found, "spec": {**wanted["spec"], "rules": [rule]}}, wanted)
    assert not says({**found, "spec": {**wanted["spec"], "hostnames": []}}, {**wanted, "spec": {"hostnames": ["a"]}})


def test_a_refusal_is_told_in_the_gateways_words_and_an_older_one_is_not() -> None:
    condition = {"type": "Accepted", "status": "False", "reason": "NotAllowedByListeners", "message": "no", "observedGeneration": 3}
    wanted: Any = owned().manifest
    found = {**wanted, "status": {"parents": [{"parentRef": PARENT, "conditions": [condition]}]}}
    current: Any = {**found, "metadata": {**wanted["metadata"], "generation": 3}}
    newer: Any = {**found, "metadata": {**wanted["metadata"], "generation": 4}}

    (text,) = refusals(current)
    assert "infra/public" in text and "NotAllowedByListeners: no" in text
    assert not refusals(newer) and not refusals(wanted)
