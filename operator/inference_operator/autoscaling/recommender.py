"""Recommend how many workers a latency target takes: the control law behind the HPA.

Latency alone can't set the number of replicas: it has a floor, no slope far from saturation, and no proportion near it. So the
number follows from the load (workers' worth of computing over the utilisation that the target allows), and the latency corrects it:

* The utilisation that the target allows is learned from what is seen. A queue's wait grows like u / (1 - u) above a floor
  (Kleinrock, "Queueing Systems", vol. 1): one window with its p95, its floor and its utilisation gives the factor, and the factor
  gives the utilisation at which the p95 would stay below the target.
* A breach that the load does not explain, and that lasts, asks for as many more as it is over the target, at most twice as many.
* A batch in the slack of the workers makes requests wait, too: what is seen beside one teaches nothing, and is no breach. The batch
  goes before another worker comes, and only the load asks for more meanwhile.
* What was asked for earlier and still warms up is counted: only the load may ask for more in the meantime.
* Going down takes a distance to going up, and a whole window that does not speak against it.

A step is a function of the state before and of what is seen. A new process has no state, and goes on from the replicas it finds:
until it has learned, only a breach takes it up, and it goes down one worker at a time.
"""

import math
from dataclasses import dataclass, replace

from inference_operator.state.load import START_UTILISATION, Load, Recommendation, Why, Workers

_LOWEST_UTILISATION, _HIGHEST_UTILISATION = 0.15, 0.85
# The p95 is held this far below the target: at the target itself half of all windows would break it.
_AIM = 0.8
_BREACH = 1.1
_CLEARED = 1.0
_MOST_GROWTH = 2.0
# A breach with the load satisfied may be an old queue that is still being worked off.
_PATIENCE_SECONDS = 8.0
# A queue that has gathered is to be gone after so long.
_WORK_OFF_SECONDS = 10.0
# A percentile of fewer requests is noise.
_FEW = 20
# Utilisation says how latency depends on it only where there is some.
_LEARN_FROM, _LEARN_UP_TO, _LEARN_SECONDS = 0.2, 0.9, 8.0
_LEARN_RATE = 0.1
# So much more or less may come in than is answered: a queue that grows or is worked off tells of another utilisation than this one.
_STEADY = 0.06
# Going down to n workers takes that n would be less busy than what makes n + 1.
_DISTANCE = 0.8
# A p95 over the target with workers this idle is not a matter of their number.
IDLE_UTILISATION = 0.3


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the job allows: `asked` is spec.replicas; `capacity` the most workers that there is place for, None unless one waits."""

    target_seconds: float
    minimum: int
    maximum: int
    asked: int
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What telemetry shows: `steady` is the window since as many workers answer as now, `recent` the newest few seconds of it.

    `lent` says that a batch ran in the slack of the workers in that window.
    """

    time: float
    workers: Workers
    steady: Load
    recent: Load
    lent: bool = False


def recommend(before: Recommendation | None, seen: Observation, bounds: Bounds, *, window_seconds: float) -> Recommendation:
    """One step."""
    state = before or Recommendation(_within(bounds.asked, bounds))
    ready = seen.workers.ready
    if not seen.workers.measured or not ready or seen.steady.seconds <= 0:
        # Nothing is known, so nothing is wanted: neither a start nor an outage must move the number.
        return replace(state, desired=_within(bounds.asked, bounds), why=Why.UNKNOWN, ready=ready, breach_since=None)
    state = _learned(state, seen, bounds)
    state = _breached(state, seen, bounds)
    wish, why = _wish(state, seen, bounds, window_seconds)
    capped = min(wish, max(bounds.capacity + 1, bounds.minimum)) if bounds.capacity is not None else wish
    desired = _within(capped, bounds)
    if capped < wish and desired < wish:
        why = Why.CAPACITY
    return replace(state, desired=desired, why=why, ready=ready)


def _learned(state: Recommendation, seen: Observation, bounds: Bounds) -> Recommendation:
    """Correct the utilisation by the newest window, if it can tell something."""
    load, ready = seen.steady, seen.workers.ready
    used = load.busy / ready
    telling = (
        not seen.lent
        and load.count >= _FEW
        and load.seconds >= _LEARN_SECONDS
        and 0 < used <= _LEARN_UP_TO
        and abs(load.demand - load.busy) <= _STEADY * load.busy
    )
    if not telling or load.p95 is None or load.floor is None:
        return state
    if load.p95 > bounds.target_seconds and _newest_within(seen.recent, bounds):
        # What is slow in this window waited in a queue that is gone: it is not of this utilisation.
        return state
    room, wait = _AIM * bounds.target_seconds - load.floor, load.p95 - load.floor
    if room <= 0:
        return state
    factor = max(wait, 1e-6) * (1 - used) / used
    allowed = min(max(room / (room + factor), _LOWEST_UTILISATION), _HIGHEST_UTILISATION)
    if used < _LEARN_FROM and allowed < state.utilisation:
        # With workers this idle the spread of latencies is that of the requests themselves: it can acquit, not convict.
        return state
    rate = _LEARN_RATE if state.learned else 1.0
    return replace(state, utilisation=state.utilisation + rate * (allowed - state.utilisation), learned=True)


def _breached(state: Recommendation, seen: Observation, bounds: Bounds) -> Recommendation:
    """Note since when the target is broken with this number of workers, and whether more of them could help at all."""
    load, ready = seen.steady, seen.workers.ready
    since = state.breach_since if state.ready == ready else None
    if load.p95 is None or load.count < _FEW or seen.workers.lending:
        return replace(state, breach_since=None)
    over = load.p95 / bounds.target_seconds
    if over > _BREACH:
        since = since if since is not None else seen.time
    elif over <= _CLEARED:
        since = None
    idle = load.busy / ready < IDLE_UTILISATION and load.demand <= load.busy * 1.1
    lasts = since is not None and seen.time - since >= _PATIENCE_SECONDS
    below = over > _CLEARED and (state.below_floor or (lasts and idle))
    return replace(state, breach_since=since, below_floor=below)


def _passes(seen: Observation, bounds: Bounds) -> bool:
    """Whether a breach goes by itself: an old queue is being worked off, or only the older part of the window remembers it."""
    return _newest_within(seen.recent, bounds) or seen.steady.busy > (1 + _STEADY) * seen.steady.demand


def _newest_within(recent: Load, bounds: Bounds) -> bool:
    return recent.count >= _FEW and recent.p95 is not None and recent.p95 <= _CLEARED * bounds.target_seconds


def _wish(state: Recommendation, seen: Observation, bounds: Bounds, window_seconds: float) -> tuple[int, Why]:
    load, recent, ready = seen.steady, seen.recent, seen.workers.ready
    whole = load.seconds >= 0.9 * window_seconds
    if not load.count and not recent.count and not seen.workers.queued:
        return (bounds.minimum, Why.IDLE) if whole else (bounds.asked, Why.HELD)
    # A model that can't hold the target anyway is served for its load alone.
    allowed = START_UTILISATION if state.below_floor else state.utilisation
    up = math.ceil((_surely(recent, -1) + _overdue(seen, bounds)) / allowed - 1e-9)
    # What was learned before a restart is learned again within a window; until then only a breach says that there are too few.
    known = state.learned or state.below_floor
    if up > bounds.asked and (known or load.p95 is None or load.p95 > bounds.target_seconds):
        return up, Why.LOAD
    if state.below_floor:
        why = Why.FLOOR
    elif state.breach_since is not None:
        lasts = seen.time - state.breach_since >= _PATIENCE_SECONDS
        if lasts and bounds.asked <= ready and load.p95 is not None and not _passes(seen, bounds):
            over = min(load.p95 / bounds.target_seconds, _MOST_GROWTH)
            return max(ready + 1, math.ceil(ready * over)), Why.BREACH
        return bounds.asked, Why.BREACH
    else:
        why = Why.HELD
    demand = max(_surely(load, 1), _surely(recent, 1))
    down = max(1, math.ceil(demand / (_DISTANCE * allowed) - 1e-9))
    if not known:
        # What fewer workers would bear is a guess as yet: a new process tries it one worker at a time.
        down = max(down, bounds.asked - 1)
    if whole and down < bounds.asked:
        return down, Why.LOAD if why is Why.HELD else why
    return bounds.asked, why


def _overdue(seen: Observation, bounds: Bounds) -> float:
    """Workers' worth of computing that works off in time what has gathered beyond what the target allows to wait."""
    recent = seen.recent
    if not recent.requests_per_second:
        return 0.0
    waits = seen.workers.queued * recent.busy / recent.requests_per_second
    return max(0.0, waits - seen.workers.ready * bounds.target_seconds) / max(_WORK_OFF_SECONDS, bounds.target_seconds)


def _surely(load: Load, sign: int) -> float:
    """The demand, less or more by what chance alone may have done: arrivals vary by their root."""
    if not load.arrived:
        return load.demand
    return load.demand * max(0.0, 1 + sign / math.sqrt(load.arrived))


def _within(number: int, bounds: Bounds) -> int:
    return max(bounds.minimum, min(number, bounds.maximum))


# The HPA leaves the number alone while its ratio is within this of 1 (its default, cluster-wide).
_TOLERANCE = 0.1


def recommended_milliseconds(desired: int, *, ready: int, asked: int, target_milliseconds: int) -> int:
    """The metric, in thousandths of a millisecond, with which the HPA comes to `desired`.

    The HPA takes ceil(value / target * ready), and keeps what is asked for while value / target is within a tenth of 1. A rise that
    this would swallow is made just large enough; a fall is swallowed. One thousandth less than the quotient, so that no rounding of
    floating point lifts it over the next whole number.
    """
    target = target_milliseconds * 1000
    if not ready or desired in (asked, ready):
        return target
    wanted = desired
    if desired > asked and abs(desired / ready - 1) <= _TOLERANCE:
        wanted = math.floor(ready * (1 + _TOLERANCE)) + 1
    return max(1, (target * wanted - 1) // ready)
