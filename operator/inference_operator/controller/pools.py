"""One model's warm pool from view to deed, and the pools as the scheduler sees them."""

from collections.abc import Iterable

from inference_operator.controller.store import Store
from inference_operator.decisions.actions import CreatePod, Plan
from inference_operator.decisions.fleet import Answer, Demand, Host, Need
from inference_operator.decisions.lodging import pool_key, pool_of
from inference_operator.decisions.pool import hosts, plan_pool, pool_need, standing
from inference_operator.domain.cluster import Key
from inference_operator.domain.credentials import Tokens
from inference_operator.runtime.clock import Clock
from inference_operator.settings import Settings


class Pools:
    """All warm pools. Holds nothing: what a pool is follows from the store."""

    def __init__(self, store: Store, settings: Settings, clock: Clock, tokens: Tokens) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._tokens = tokens

    def need(self, model: Key, demand: Demand) -> Need | None:
        """The workers that a pool wants placed now."""
        now = self._clock.now()
        observed = self._store.observe_pool(model, now)
        if observed is None:
            return None
        pool = pool_of(observed.model, self._settings)
        return pool_need(observed, pool, standing(observed, pool, demand, self._settings, now), demand, self._settings, now)

    def plan(self, model: Key, demand: Demand, answer: Answer | None) -> Plan:
        """What to do about a pool."""
        now = self._clock.now()
        observed = self._store.observe_pool(model, now)
        if observed is None:
            return Plan()
        pool = pool_of(observed.model, self._settings)
        stand = standing(observed, pool, demand, self._settings, now)
        return plan_pool(observed, pool, stand, answer, self._settings, self._tokens, now)

    def hosts(self, demands: dict[Key, Demand], blocked: Iterable[Key]) -> tuple[Host, ...]:
        """Every pool's workers as places for tasks. Pools that found no room are `blocked`: they will not grow soon."""
        now = self._clock.now()
        full = frozenset(blocked)
        found: list[Host] = []
        for key, model in self._store.models.items():
            pool = pool_of(model, self._settings)
            observed = self._store.observe_pool(key, now) if pool is not None else None
            if pool is not None and observed is not None:
                own = pool_key(key)
                demand = demands.get(own, Demand())
                found += hosts(observed, pool, demand, self._settings, now, blocked=own in full)
        return tuple(found)


def makes_pods(plan: Plan) -> bool:
    """Whether a plan takes places."""
    return any(isinstance(action, CreatePod) for action in plan.actions)
