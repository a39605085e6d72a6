"""A service in virtual time: Poisson arrivals, workers that each serve one request after the other, the HPA's arithmetic.

Each request picks a worker by chance, as connections do behind a Service. Everything is a function of the seed.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from inference_operator.autoscaling import window
from inference_operator.autoscaling.recommender import Bounds, Observation, recommend, recommended_milliseconds
from inference_operator.state.load import History, Recommendation, Sample, Workers
from inference_protocol.sketch import LatencySketch

TOLERANCE = 0.1


class Signal(Enum):
    """What the HPA goes by: the operator's number, or what the control law is measured against."""

    RECOMMENDED = "the operator's number"
    P95 = "the plain p95"
    CPU = "CPU of the workers"
    KEDA_P95 = "the plain p95 by way of Prometheus and KEDA"
    KEDA_NUMBER = "the operator's number by way of Prometheus and KEDA"


@dataclass
class Server:
    """One worker: when it is free, what it has counted."""

    ready_at: float
    free_at: float = 0.0
    sketch: LatencySketch = field(default_factory=LatencySketch)
    busy: float = 0.0
    answered: int = 0
    # (end, start, latency) of requests that it has taken.
    taken: list[tuple[float, float, float]] = field(default_factory=list)
    before: Sample | None = None
    leaves: bool = False

    def take(self, now: float, service: float) -> None:
        start = max(now, self.free_at)
        self.free_at = start + service
        self.taken.append((self.free_at, start, self.free_at - now))

    def sample(self, now: float) -> Sample:
        """What telemetry would tell."""
        rest = []
        running = 0.0
        for end, start, latency in self.taken:
            if end <= now:
                self.sketch.record(latency)
                self.busy += end - start
                self.answered += 1
            else:
                rest.append((end, start, latency))
                running += max(0.0, now - start)
        self.taken = rest
        return Sample(now, dict(self.sketch.counts), self.busy + running, self.answered, len(rest))


@dataclass(frozen=True)
class Moment:
    """How it stood at a second."""

    time: float
    asked: int
    ready: int
    desired: int
    p95: float | None


@dataclass(frozen=True)
class _Told:
    """What the HPA is told when it asks."""

    desired: int
    p95: float | None
    busy: float


@dataclass
class Service:
    """What is simulated. `rate` gives requests a second at a time, `service` a request's seconds of computing."""

    rate: Callable[[float], float]
    service: Callable[[random.Random], float]
    target: float
    minimum: int = 1
    maximum: int = 20
    start_seconds: float = 4.0
    hpa_seconds: float = 15.0
    down_seconds: float = 60.0
    window_seconds: float = 15.0
    seed: int = 1
    restarts: tuple[float, ...] = ()
    capacity: int | None = None
    asked: int = 1
    signal: Signal = Signal.RECOMMENDED
    # What goes through Prometheus or metrics-server is as old as their last look.
    scrape_seconds: int = 15
    cpu_target: float = 0.6

    def run(self, until: float) -> list[Moment]:
        """Second by second."""
        dice = random.Random(self.seed)
        servers = [Server(0.0) for _ in range(self.asked)]
        history: History | None = None
        state: Recommendation | None = None
        asked = self.asked
        moments: list[Moment] = []
        wishes: list[tuple[float, int]] = []
        told = _Told(self.asked, None, 0.0)
        due = _next(dice, 0.0, self.rate)
        for second in range(1, int(until)):
            now = float(second)
            ready = [s for s in servers if s.ready_at <= now - 1]
            while due < now:
                if ready:
                    dice.choice(ready).take(due, self.service(dice))
                due = _next(dice, due, self.rate)
            ready = [s for s in servers if s.ready_at <= now]
            if second in self.restarts:
                history, state = None, None
                for server in servers:
                    server.before = None
            pairs = []
            queued = 0
            for server in ready:
                after = server.sample(now)
                queued += max(0, after.outstanding - 1)
                if server.before is not None:
                    pairs.append((server.before, after))
                server.before = after
            workers = Workers(len(ready), len(ready), 0, 0, queued)
            history = window.extended(history, window.interval(pairs, now), workers, keep_seconds=self.window_seconds + 10)
            waits = self.capacity is not None and asked > self.capacity
            bounds = Bounds(self.target, self.minimum, self.maximum, asked, len(servers) if waits else None)
            steady = window.load(history, seconds=self.window_seconds, since=history.steady_since)
            recent = window.load(history, seconds=5.0, since=history.steady_since)
            state = recommend(state, Observation(now, workers, steady, recent), bounds, window_seconds=self.window_seconds)
            whole = window.load(history, seconds=self.window_seconds)
            moments.append(Moment(now, asked, len(ready), state.desired, whole.p95))
            if self.signal in (Signal.RECOMMENDED, Signal.P95) or second % self.scrape_seconds == 0:
                told = _Told(state.desired, whole.p95, whole.busy / len(ready) if ready else 0.0)
            if second % int(self.hpa_seconds) == 0:
                asked = self._hpa(asked, told, len(ready), wishes, now)
                self._follow(servers, asked, now)
        return moments

    def _hpa(self, asked: int, told: _Told, ready: int, wishes: list[tuple[float, int]], now: float) -> int:
        """As kube-controller-manager does it, for the kind of metric that the signal is."""
        match self.signal:
            case Signal.RECOMMENDED:
                target = round(self.target * 1000)
                milli = recommended_milliseconds(told.desired, ready=ready, asked=asked, target_milliseconds=target)
                ratio = milli / (target * 1000)
            case Signal.P95 | Signal.KEDA_P95:
                ratio = round((told.p95 or 0.0) * 1e6) / round(self.target * 1e6)
            case Signal.CPU:
                ratio = told.busy / self.cpu_target
            case Signal.KEDA_NUMBER:
                # An average over the replicas: what is asked for, not what is ready, is what it is of.
                ratio, ready = told.desired / asked, asked
        wish = asked if abs(ratio - 1) <= TOLERANCE else math.ceil(ratio * ready)
        wish = max(self.minimum, min(wish, self.maximum))
        wishes.append((now, wish))
        recent = max(w for t, w in wishes if now - t <= self.down_seconds)
        if wish > asked:
            return min(wish, max(asked * 2, asked + 4))
        return min(asked, max(recent, math.ceil(asked / 2)))

    def _follow(self, servers: list[Server], asked: int, now: float) -> None:
        room = asked if self.capacity is None else min(asked, self.capacity)
        while len(servers) < room:
            servers.append(Server(now + self.start_seconds))
        del servers[room:]


def _next(dice: random.Random, now: float, rate: Callable[[float], float]) -> float:
    """The next arrival; by thinning nothing, since rates here change in steps of many seconds."""
    here = rate(now)
    if here <= 0:
        return math.floor(now) + 1.0 + 1e-6
    return now + dice.expovariate(here)


def reversals(moments: list[Moment], *, since: float) -> int:
    """How often what is asked for turned round."""
    asked = [m.asked for m in moments if m.time >= since]
    steps = [b - a for a, b in pairwise(asked) if a != b]
    return sum((a > 0) != (b > 0) for a, b in pairwise(steps))


def share_over(moments: list[Moment], target: float, *, since: float) -> float:
    """The share of seconds whose window was over the target."""
    seen = [m for m in moments if m.time >= since and m.p95 is not None]
    return sum(m.p95 > target for m in seen if m.p95 is not None) / max(1, len(seen))
