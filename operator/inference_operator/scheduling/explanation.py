"""Why this place and not another, in words: made when somebody asks, which is once for each worker that is really created."""

from datetime import datetime
from math import ceil

from inference_operator.api.conditions import Reason
from inference_operator.api.instants import whole_second
from inference_operator.api.job import Alternative, CostTerms
from inference_operator.api.schema import rfc3339
from inference_operator.scheduling import filters
from inference_operator.scheduling.node_capacity import Board, Slot
from inference_operator.scheduling.types import Eviction, Need, Obstacle, Option, Tenure
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key

_ALTERNATIVES = 4


class Choosing:
    """The grounds of one assignment, over the board as the pass has left it. Without a slot it goes to a warm worker."""

    __slots__ = ("_board", "_haste", "_need", "_now", "_option", "_slot", "_weights")

    def __init__(
        self, board: Board, need: Need, option: Option, slot: Slot | None, weights: CostWeights, haste: float, now: datetime
    ) -> None:
        self._board, self._need, self._option, self._slot = board, need, option, slot
        self._weights, self._haste, self._now = weights, haste, now

    def cost(self) -> CostTerms:
        """See fleet.Grounds."""
        return filters.cost(self._option, self._weights, self._haste)

    def alternatives(self) -> tuple[Alternative, ...]:
        """Why not elsewhere: the other classes first, and what could have run before what could not."""
        found: list[Alternative] = []
        for option in sorted(self._need.options, key=lambda o: o is self._option):
            terms = filters.cost(option, self._weights, self._haste)
            for slot in self._board.fit(option.shape)[: _ALTERNATIVES + 1]:
                if option is self._option and slot is self._slot:
                    continue
                reason = filters.full(slot.node, slot.free, option.shape) or self._why_not(option, slot)
                found.append(Alternative(accelerator=option.accelerator, node=slot.node.name, reason=reason, cost=terms))
            for node, reason in self._board.unfit(option.shape)[:_ALTERNATIVES]:
                found.append(Alternative(accelerator=option.accelerator, node=node, reason=reason))
            if len(found) >= _ALTERNATIVES:
                break
        return tuple(found[:_ALTERNATIVES])

    def _why_not(self, option: Option, slot: Slot) -> str:
        deadline, chosen = self._need.deadline, self._option
        if option is chosen:
            usage = slot.usage
            if usage.strangers and usage.resource in option.shape.wants:
                return f"{usage.strangers:g} of its {usage.resource} are in use by others than pods"
            return "no emptier than the node taken, at the same cost"
        if deadline is not None and not filters.in_time(option, deadline, self._now):
            return f"would be done at {rfc3339(filters.completion(option, self._now))}, after the deadline"
        if deadline is not None and option.watts > chosen.watts:
            return f"{chosen.accelerator} is in time too, on {chosen.watts:g} W instead of {option.watts:g} W"
        more = filters.total_cost(option, self._weights, self._haste) - filters.total_cost(chosen, self._weights, self._haste)
        return f"costs {more:.3g} s more" if more >= 0 else f"would cost {-more:.3g} s less, but has others before this one"


def infeasible(need: Need, now: datetime) -> Obstacle:
    """The deadline can't be met: by how much, and the earliest one that could."""
    assert need.deadline is not None
    quickest = min(need.options, key=lambda o: o.estimate.total_seconds)
    earliest = filters.completion(quickest, now)
    if need.deadline <= now:
        text = "the deadline has passed"
    else:
        text = (
            f"even started now on {quickest.accelerator} it would be done at {rfc3339(earliest)}, "
            f"{ceil((earliest - need.deadline).total_seconds())} s after the deadline"
        )
    cure = f"set deadline to {rfc3339(whole_second(earliest))} or later, or deadlinePolicy: Soft to run late"
    return Obstacle(Reason.DEADLINE_INFEASIBLE, f"{text}; {cure}", final=True, possible=earliest)


def eviction(tenure: Tenure, beneficiary: Key) -> Eviction:
    """Why a tenure has to leave."""
    own = "" if tenure.deadline is None else f", with time left until its own deadline {rfc3339(tenure.deadline)}"
    text = f"makes room on {tenure.node} for {beneficiary}, which can be in time no other way; goes on from what is committed{own}"
    return Eviction(beneficiary, text)
