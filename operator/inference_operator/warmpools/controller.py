"""The warm pools as the store shows them: what each wants, what is to be done about it, and its workers as places."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from inference_operator.runtime.clock import Clock
from inference_operator.scheduling.types import Decision, PlacementRequest, PoolDemand, WarmWorker
from inference_operator.settings import Settings
from inference_operator.state.objects import Key, Model
from inference_operator.state.observed import PoolObserved
from inference_operator.state.request import pool_request
from inference_operator.state.store import Store
from inference_operator.warmpools.credentials import Tokens
from inference_operator.warmpools.model_status import is_count_due, with_model_status
from inference_operator.warmpools.places import warm_workers
from inference_operator.warmpools.pool import plan_pool, pool_placement_request
from inference_operator.warmpools.pool_state import PoolState, pool_state
from inference_operator.workers.actions import CreatePod, Plan, WriteModelStatus


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a model's pool, with what it wants placed; made once for all that is decided by it."""

    observed: PoolObserved
    state: PoolState
    demand: PoolDemand
    request: PlacementRequest | None
    now: datetime


class Pools:
    """All warm pools, and what is said of their models. What a pool is follows from the store."""

    def __init__(self, store: Store, settings: Settings, clock: Clock, tokens: Tokens) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._tokens = tokens
        # When the jobs of a model were last counted.
        self._counted: dict[Key, datetime] = {}

    def models(self) -> list[Key]:
        """Return the models that have a pool, or workers of one that they had."""
        found = self._store.models.items()
        return [key for key, model in found if _has_pool(model) or self._store.workers_of(model)]

    def look(self, model: Key, demand: PoolDemand) -> Look | None:
        """Return how a pool stands now; None when its model is gone."""
        now = self._clock.now()
        observed = self._store.observe_pool(model, now)
        if observed is None:
            self._counted.pop(model, None)
            return None
        state = pool_state(observed, demand, self._settings, now)
        return Look(observed, state, demand, pool_placement_request(observed, state, demand, self._settings, now), now)

    def plan(self, look: Look, decision: Decision | None) -> Plan:
        """Return what to do about a pool, and what to say about its model."""
        plan = plan_pool(look.observed, look.state, decision, self._settings, self._tokens, look.now)
        model, users = look.observed.model, None
        if is_count_due(model, self._counted.get(model.key), look.now):
            users = self._store.users_of(model.key)
            self._counted[model.key] = look.now
        return with_model_status(plan, model, users, self._settings, look.now)

    def forget_refusals_of(self, look: Look) -> None:
        """Forget what was refused of a plan if the model's spec has changed since its look: a refusal was of the one before."""
        latest = self._store.models.get(look.observed.model.key)
        if latest is not None and latest.generation != look.observed.model.generation:
            self._store.forget_refusals(pool_request(latest.key))

    def warm_workers(self, looks: Iterable[Look], blocked: Iterable[Key]) -> tuple[WarmWorker, ...]:
        """Return the pools' workers as places for tasks. Pools of `blocked` models found no room: they will not grow soon."""
        full = frozenset(blocked)
        found: list[WarmWorker] = []
        for look in looks:
            is_full = look.observed.model.key in full
            found += warm_workers(look.observed, look.state, look.demand, self._settings, look.now, blocked=is_full)
        return tuple(found)


def _has_pool(model: Model) -> bool:
    return model.spec is not None and model.spec.warm_pool is not None


def moves_pool(plan: Plan, model: Model) -> bool:
    """Whether a plan changes anything about a model's pool: what is said of the model alone concerns no place."""
    return any(not isinstance(one, WriteModelStatus) or one.status.warm_pool != model.status.warm_pool for one in plan.actions)


def makes_pods(plan: Plan) -> bool:
    """Whether a plan takes places."""
    return any(isinstance(action, CreatePod) for action in plan.actions)
