"""Paths as clients write them: percent-encoded, with a slash at the end, with a model that there is not."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.serve.http_messages import plain_path
from inference_worker.serve.routes import Routes
from tests.process import models
from tests.process.harness import a_config
from tests.process.wire import infer_json
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.states import an_unloaded_worker_state, ask, loading, real, routes_of


async def routes_named(name: str, **config: Any) -> Routes:
    source = msgspec.structs.replace(a_config("pvc://data/m.onnx").model, name=name)
    state = an_unloaded_worker_state(model=source, **config)
    loading(state, lambda: real(models.identity()))
    await state.repository.load(name)
    return routes_of(state)


def on_the_wire(path: str) -> str:
    """As a connection gives it: bytes as latin-1."""
    return path.encode().decode("latin-1")


@pytest.mark.parametrize("name", ["my model", "größe", "a+b", "v1:2", "100%", "a%41", "x~y", "résumé (1)", "..", "a;b", "a?b"])
async def test_a_model_is_found_by_its_name_as_clients_quote_it(name: str) -> None:
    """triton-inference-server/client quotes names in every path."""
    routes = await routes_named(name)
    for quoted in {quote(name), quote(name, safe="")}:
        path = f"/v2/models/{quoted}"
        assert json.loads((await ask(routes, path)).body)["name"] == name
        assert (await ask(routes, f"{path}/ready")).status == (await ask(routes, f"{path}/versions/1/ready")).status == 200
        reply = await ask(routes, f"{path}/infer", infer_json([[1, 2]]), method="POST")
        assert (reply.status, json.loads(reply.body)["model_name"]) == (200, name)


async def test_a_name_that_is_not_quoted_is_found_too() -> None:
    assert (await ask(await routes_named("größe"), on_the_wire("/v2/models/größe/ready"))).status == 200


@pytest.mark.parametrize(
    "path", ["/v2/", "/v2/models/", "/v2/models/net/", "/v2/models/net/ready/", "/v2/health/live/", "/metrics/"]
)
async def test_a_slash_at_the_end_changes_nothing(path: str) -> None:
    """Frameworks and hand-written clients put it there; FastAPI, under KServe's server, redirects them."""
    routes = await routes_named("net")

    assert (await ask(routes, path)).status == (await ask(routes, path[:-1])).status == 200
    reply = await ask(routes, "/v2/models/net/infer/", infer_json([[1, 2]]), method="POST")
    assert reply.status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v2//",
        "/v2/models//net",
        "/v2%2Fmodels%2Fnet",
        "/v2/models/net%2Finfer",
        "/v2/models/../models/net",
        "/v2/models/%2e%2e/net",
        "/v2/models/net%00",
        "/v2/models/net%",
        "/v2/models/%ff%fe",
        "/v2/models/%6eet/%2f",
        "/%",
        "",
    ],
)
async def test_what_only_looks_like_a_path_of_ours_is_404(path: str) -> None:
    routes = await routes_named("net")
    for method in ("GET", "POST"):
        reply = await ask(routes, path, method=method)
        assert reply.status == 404 and len(reply.body) < 1000, path


@given(st.text(st.characters(max_codepoint=255), max_size=60))
@STEADY
def test_any_path_is_made_plain_without_a_fault(path: str) -> None:
    plain = plain_path("/" + path)

    assert plain.startswith("/")
    assert plain.count("/") in (("/" + path).count("/"), ("/" + path).count("/") - 1)


@pytest.mark.parametrize(
    ("path", "begin"),
    [
        ("/v2/models/wrong_model_name", "Request for unknown model"),
        ("/v2/models/wrong_model_name/infer", "Request for unknown model"),
        ("/v2/models/wrong%20name/versions/3", "Request for unknown model: 'wrong name'"),
        ("/v2/repository/models/wrong_model_name/load", "failed to load 'wrong_model_name'"),
        ("/v2/repository/models/wrong_model_name/unload", "failed to unload"),
        ("/v2/models/net/nothing", "nothing at"),
        ("/v3", "nothing at"),
    ],
)
async def test_the_refusal_of_a_model_begins_as_clients_look_for_it(path: str, begin: str) -> None:
    """triton-inference-server/client: simple_http_health_metadata and simple_http_model_control compare these words."""
    reply = await ask(await routes_named("net"), path, method="POST" if "load" in path else "GET")

    error = json.loads(reply.body)["error"]
    assert reply.status == 404 and error.startswith(begin) and error.endswith("net")


async def test_the_models_are_listed_by_name_with_their_versions_and_states() -> None:
    """KServe's server lists names; the index beside them is the repository's."""
    routes = await routes_named("net", model_control="explicit")
    listed = json.loads((await ask(routes, "/v2/models")).body)
    assert listed == {"models": ["net"], "index": [{"name": "net", "version": "1", "state": "READY", "reason": ""}]}

    await ask(routes, "/v2/repository/models/net/unload", method="POST")
    listed = json.loads((await ask(routes, "/v2/models")).body)
    assert (listed["models"], listed["index"][0]["state"]) == (["net"], "UNAVAILABLE")
