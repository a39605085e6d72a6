"""Asks a learned policy, beside each pass and in a thread of its own, what it would have done. Its answers are only counted."""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Protocol

from inference_operator.observability import metrics
from inference_operator.scheduling.types import Decision, Fleet
from inference_operator.shadow.comparison import MOST, Verdict, compare, shown, vetoed
from inference_operator.shadow.features import RECENT_SECONDS, Table, table
from inference_operator.state.request import Request

log = logging.getLogger(__name__)

# Longer than this a pass would not wait for it, if it had a say. Rank and room a pass has at hand, and here they are found anew.
BUDGET_SECONDS = 5e-3
# The share of the time that it looks: a large fleet is looked at less often, not at the cost of others.
_SHARE = 0.05


class Scorer(Protocol):
    """A policy, see shadow/policy.py."""

    threshold: float

    def scores(self, rows: Table) -> list[float]:
        """For each row the probability that the job will be on time."""
        ...


class Shadow:
    """One look at a time: a pass that comes while one goes on, or soon after, is skipped, so the loop never waits."""

    def __init__(
        self,
        policy: Scorer,
        submit: Callable[[Callable[[], None]], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`submit` has something done elsewhere; a thread by default."""
        self._policy = policy
        self._submit = submit or ThreadPoolExecutor(1, "shadow").submit
        self._clock = clock
        self._looking = False
        self._rests_until = 0.0
        self._failed = False
        # When the jobs came that came lately, those that have their place by now with them.
        self._came: dict[Request, datetime] = {}

    def watch(self, fleet: Fleet, decisions: Mapping[Request, Decision], now: datetime) -> None:
        """A pass has given these answers. They are copied, not kept."""
        if not fleet.requests:
            return
        if self._looking or self._clock() < self._rests_until:
            _count([Verdict.SKIPPED] * min(len(fleet.requests), MOST))
            return
        self._looking = True
        copied = dict(decisions)
        self._submit(lambda: self._look(fleet, copied, now))

    def _look(self, fleet: Fleet, decisions: Mapping[Request, Decision], now: datetime) -> None:
        began = self._clock()
        try:
            outcomes = self._outcomes(fleet, decisions, now)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is nobody else's
            # Said once, since it would be said twenty times a second.
            log.log(logging.DEBUG if self._failed else logging.WARNING, "the policy was not asked: %s", error)
            self._failed = True
            outcomes = [Verdict.SKIPPED] * min(len(fleet.requests), MOST)
        _count(outcomes)
        ended = self._clock()
        self._rests_until = ended + (ended - began) / _SHARE
        self._looking = False

    def _outcomes(self, fleet: Fleet, decisions: Mapping[Request, Decision], now: datetime) -> list[Verdict]:
        recent = now - timedelta(seconds=RECENT_SECONDS)
        came = {**self._came, **{request.key: request.created for request in fleet.requests if request.created >= recent}}
        self._came = {key: created for key, created in came.items() if created >= recent}
        requests, scene = shown(fleet, now, len(self._came))
        if scene is None:
            return []
        began = self._clock()
        scores = self._policy.scores(table(scene))
        outcomes = list(compare(requests, decisions, vetoed(scene, scores, self._policy.threshold), now))
        took = self._clock() - began
        metrics.policy_seconds.observe(took)
        if took > BUDGET_SECONDS:
            return [Verdict.SKIPPED] * len(requests)
        for request, outcome, score in zip(requests, outcomes, scores, strict=True):
            if outcome is not Verdict.AGREES:
                log.debug("policy: %s %s (%.3f)", request.key, outcome.value, score)
        return outcomes


def _count(outcomes: list[Verdict]) -> None:
    for outcome in outcomes:
        metrics.policy_decisions_total.labels(outcome.value).inc()
