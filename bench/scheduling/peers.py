"""Policies that others use, in their plain form: an order of the queue, with or without dropping what can no longer be in time."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.scheduling.workload import SimJob

Order = Callable[[SimJob], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue order. The quickest idle device is taken.

    `sheds` drops a job once no idle class could finish it in time; `stops` ends a job that runs at its deadline.
    """

    name: str
    order: Order
    sheds: bool
    stops: bool = False


FIFO = Peer("FIFO", lambda job: (job.arrival,), sheds=False)
PRIORITY = Peer("priority", lambda job: (-job.priority, job.arrival), sheds=False)
EDF = Peer("EDF", lambda job: (job.deadline,), sheds=False)
FIFO_SHED = Peer("FIFO+shed", FIFO.order, sheds=True)
PRIORITY_SHED = Peer("priority+shed", PRIORITY.order, sheds=True)
EDF_SHED = Peer("EDF+shed", EDF.order, sheds=True)
EDF_SHED_STOP = Peer("EDF+shed+stop", EDF.order, sheds=True, stops=True)

PEERS = (FIFO, PRIORITY, EDF, FIFO_SHED, PRIORITY_SHED, EDF_SHED, EDF_SHED_STOP)
