"""Tokens that were good and all others: budgets and caches apart."""

import asyncio
from typing import Any

import pytest

from inference_operator.autoscaling.metricsapi import authentication
from inference_operator.autoscaling.metricsapi.authentication import Identity, Tokens
from inference_operator.autoscaling.metricsapi.budget import ReviewBudget
from inference_operator.errors import OverloadedError
from tests.unit.autoscaling.metricsapi.kube import FakeKube

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


class Api:
    """Two clients of one API server, and the tokens that are good."""

    def __init__(self, most: int = 4) -> None:
        self.good, self.now = {"good"}, 0.0
        self.known, self.unknown = FakeKube(), FakeKube()
        for kube in (self.known, self.unknown):
            kube.reviews[REVIEWS] = self._review
        self.tokens = Tokens(ReviewBudget(self.known, most=most), ReviewBudget(self.unknown, most=most), lambda: self.now)

    def _review(self, spec: dict[str, Any]) -> dict[str, Any]:
        return {"authenticated": spec["token"] in self.good, "user": {"username": "jane"}}

    async def who(self, token: str) -> Identity | None:
        return await self.tokens.identity(f"Bearer {token}")

    @property
    def reviewed(self) -> tuple[int, int]:
        return len(self.known.asked), len(self.unknown.asked)


async def test_a_token_that_was_good_is_reviewed_by_the_other_budget_from_then_on() -> None:
    api = Api()
    for now in (0.0, 5.0, 11.0, 22.0):
        api.now = now
        assert await api.who("good") == Identity("jane")

    assert api.reviewed == (2, 1)


async def test_a_token_that_is_good_no_longer_is_one_of_the_others() -> None:
    api = Api()
    await api.who("good")
    api.good, api.now = set(), 11.0
    assert await api.who("good") is None
    api.now = 22.0
    assert await api.who("good") is None

    assert api.reviewed == (1, 2)


async def test_junk_pushes_no_good_token_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_MOST_OTHERS", 8)
    api = Api()
    await api.who("good")
    for number in range(100):
        assert await api.who(f"junk-{number}") is None
    assert await api.who("good") == Identity("jane")

    assert api.reviewed == (0, 101)
    assert len(api.tokens._others._kept) <= 8


async def test_only_so_many_good_tokens_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_MOST_GOOD", 3)
    api = Api()
    api.good = {str(number) for number in range(10)}
    for token in sorted(api.good):
        await api.who(token)

    assert len(api.tokens._were_good) == 3


async def test_whoever_is_over_the_budget_is_shed_at_once_and_let_in_later() -> None:
    class Slow(FakeKube):
        held = asyncio.Event()

        async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            await self.held.wait()
            return await super().create(path, body)

    kube = Slow()
    kube.reviews["/x"] = lambda _: {"ok": True}
    budget = ReviewBudget(kube, most=2)
    under_way = [asyncio.create_task(budget.create("/x", {"spec": {}})) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(OverloadedError):
        await budget.create("/x", {"spec": {}})
    kube.held.set()
    await asyncio.gather(*under_way)
    assert (await budget.create("/x", {"spec": {}}))["status"] == {"ok": True}


async def test_a_token_that_is_not_ascii_is_nobodys_and_costs_no_review() -> None:
    """Fuzzing found it: its bytes are surrogates by then, which no text of a request may have, and a traceback was logged for each."""
    api = Api()

    assert await api.who("go\udcffod") is None and await api.who("gööd") is None
    assert api.reviewed == (0, 0)
