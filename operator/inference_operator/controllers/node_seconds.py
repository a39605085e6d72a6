"""How long new nodes take to come, by accelerator class, as the statuses of the jobs say that they came for.

A new operator reads every job, and knows it again.
"""

from collections.abc import Mapping
from datetime import datetime
from statistics import median

from inference_operator.state.objects import Job

# Of each class the newest nodes count, by their median: one that was slow says little of the next.
_NEWEST = 9


class NodeSeconds:
    """The nodes that came, each by the uid of the job that it came for and the time of the request."""

    def __init__(self) -> None:
        self._came: dict[str, dict[tuple[datetime, str], float]] = {}

    def read(self, job: Job) -> None:
        """Note what a job's status says; reading it again changes nothing."""
        for one in job.status.provisioning or ():
            if one.seconds is None or one.request_time is None:
                continue
            came = self._came.setdefault(one.accelerator, {})
            came[one.request_time, job.uid] = one.seconds
            for old in sorted(came)[:-_NEWEST]:
                del came[old]

    def by_class(self) -> Mapping[str, float]:
        """Return the seconds from the request of a node until it took its job, of each class that has shown it."""
        return {name: median(came.values()) for name, came in self._came.items()}
