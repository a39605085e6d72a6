"""What the caps of namespaces leave in one pass: recounted from pods at its start, used up as places are given.

A cap has three counts. `planned` keeps the plan from holding room for work that may not start. `used` decides as places are given.
`awaited` are those who wait for room under it: who waits behind them is told of the cap, whatever room comes and goes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inference_operator.namespace_limits import NamespaceLimits
from inference_operator.scheduling.types import PlacementRequest
from inference_operator.state.objects import Node, Pod

# The workers of a namespace, whatever their class.
_ALL = ""


@dataclass(slots=True, eq=False)
class Cap:
    """One cap of a namespace: `most` workers, of one accelerator class or of all."""

    namespace: str
    accelerator: str
    most: int
    used: int
    planned: int
    awaited: int = 0

    def __str__(self) -> str:
        what = f"{self.accelerator} workers (maxDevices)" if self.accelerator != _ALL else "workers (maxReplicas)"
        others = ", and others of it wait for the rest" if self.used < self.most else ""
        return f"namespace {self.namespace} has {self.used} of at most {self.most} {what}{others}"


@dataclass(slots=True, eq=False)
class PreemptionBudget:
    """How often the jobs of a namespace may still preempt work of others; `most` is its cap in an hour."""

    namespace: str
    most: int
    left: int

    def __str__(self) -> str:
        return f"namespace {self.namespace} may preempt work of other namespaces {self.most} times an hour (maxPreemptionsPerHour)"


class Caps:
    """The caps of all namespaces in one pass."""

    def __init__(self, limits: NamespaceLimits, nodes: Iterable[Node], pods: Iterable[Pod], preemptions: Mapping[str, int]) -> None:
        self._limits, self._any = limits, limits.caps_workers
        self._in_use = _workers(nodes, pods) if self._any else Counter[tuple[str, str]]()
        self._caps: dict[tuple[str, str], Cap | None] = {}
        self._of: dict[tuple[str, str], tuple[Cap, ...]] = {}
        self._preemptions = preemptions
        self._budgets: dict[str, PreemptionBudget | None] = {}

    def hold_back(self, request: PlacementRequest) -> bool:
        """Whether a cap lets a request start no worker on one of its classes."""
        namespace = request.key.namespace
        return self._any and any(in_the_way(self.of(namespace, option.accelerator)) is not None for option in request.options)

    def of(self, namespace: str, accelerator: str) -> tuple[Cap, ...]:
        """The caps that a worker of this class counts against; mostly none."""
        if not self._any:
            return ()
        found = self._of.get((namespace, accelerator))
        if found is None:
            both = (self._cap(namespace, accelerator), self._cap(namespace, _ALL))
            found = self._of[namespace, accelerator] = tuple(cap for cap in both if cap is not None)
        return found

    def _cap(self, namespace: str, accelerator: str) -> Cap | None:
        if (namespace, accelerator) not in self._caps:
            limits = self._limits.of(namespace)
            most = limits.max_replicas if accelerator == _ALL else limits.max_devices.get(accelerator)
            used = self._in_use[namespace, accelerator]
            made = Cap(namespace, accelerator, most, used, used) if most is not None else None
            self._caps[namespace, accelerator] = made
        return self._caps[namespace, accelerator]

    def budget(self, namespace: str) -> PreemptionBudget | None:
        """The preemptions that a namespace has left; None where nothing bounds them."""
        if namespace not in self._budgets:
            most = self._limits.of(namespace).max_preemptions_per_hour
            left = max(0, most - self._preemptions.get(namespace, 0)) if most is not None else 0
            self._budgets[namespace] = PreemptionBudget(namespace, most, left) if most is not None else None
        return self._budgets[namespace]


def _workers(nodes: Iterable[Node], pods: Iterable[Pod]) -> Counter[tuple[str, str]]:
    """Living workers by namespace and class. One that nobody reaches has been given up, with a device that nobody can have."""
    out_of_reach = {node.name for node in nodes if not node.reachable}
    found: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        if pod.worker is not None and not pod.terminal and pod.node not in out_of_reach:
            found[pod.key.namespace, pod.worker.accelerator] += 1
            found[pod.key.namespace, _ALL] += 1
    return found


def in_the_way(caps: Iterable[Cap]) -> Cap | None:
    """The first cap that lets no further worker start; None where all do."""
    for cap in caps:
        if cap.used + cap.awaited >= cap.most:
            return cap
    return None


def is_planned_out(caps: Iterable[Cap]) -> bool:
    """Whether a cap lets nothing further be planned."""
    for cap in caps:  # noqa: SIM110 -- asked ten thousand times in a pass, and a generator takes twice as long
        if cap.planned >= cap.most:
            return True
    return False
