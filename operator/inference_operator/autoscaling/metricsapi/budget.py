"""How much the operator asks the API server on behalf of callers: each kind of caller has a budget of its own."""

from dataclasses import dataclass

from inference_operator.errors import OverloadedError
from inference_operator.kube.ports import KubeClient, Raw


@dataclass(frozen=True, slots=True)
class ReviewClients:
    """A client of the API server, each with a rate of its own, for each kind of caller.

    `proxied` is for users whom the API server sends, as the HPA's controller; `known` for callers whose token was good a short time
    ago; `unknown` for all others, who may be anybody.
    """

    proxied: KubeClient
    known: KubeClient
    unknown: KubeClient


class ReviewBudget:
    """Reviews of one kind of caller: so many at once, and no queue. Who waited would wait behind everybody who sends junk."""

    def __init__(self, kube: KubeClient, *, most: int) -> None:
        self._kube = kube
        self._most = most
        self._under_way = 0

    async def create(self, path: str, body: Raw) -> Raw:
        """POST a review; its answer. Raises OverloadedError at once when the budget is used up, and what the client raises."""
        if self._under_way >= self._most:
            raise OverloadedError("too many callers are looked up at this moment; come again")
        self._under_way += 1
        try:
            return await self._kube.create(path, body)
        finally:
            self._under_way -= 1
