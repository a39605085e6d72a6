"""What one pass has decided, by whom it concerns, and why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from inference_operator.scheduling.explanation import Chosen, explain
from inference_operator.scheduling.new_nodes import NewNodes
from inference_operator.scheduling.node_capacity import NodeCapacity
from inference_operator.scheduling.slack_types import ServiceSlack
from inference_operator.scheduling.types import Decision
from inference_operator.settings import CostWeights
from inference_operator.state.request import Request


@dataclass(frozen=True, slots=True, eq=False)
class Schedule(Mapping[Request, Decision]):
    """The decisions of one pass. Explanations are made on demand: a job that waits costs next to nothing."""

    decisions: Mapping[Request, Decision]
    _chosen: Mapping[Request, Sequence[Chosen]] = field(repr=False)
    _capacity: NodeCapacity = field(repr=False)
    _slack: Sequence[ServiceSlack] = field(repr=False)
    _new_nodes: NewNodes = field(repr=False)
    _weights: CostWeights = field(repr=False)
    _now: datetime

    def explained(self, key: Request) -> Decision:
        """A decision with an explanation for each of its assignments. Raises KeyError."""
        decision = self.decisions[key]
        if not decision.assignments:
            return decision
        seen = self._capacity, self._slack, self._new_nodes, self._weights, self._now
        found = tuple(explain(chosen, *seen) for chosen in self._chosen[key])
        return decision._replace(explanations=found)

    def __getitem__(self, key: Request) -> Decision:
        return self.decisions[key]

    def __iter__(self) -> Iterator[Request]:
        return iter(self.decisions)

    def __len__(self) -> int:
        return len(self.decisions)
