"""Who has preempted work of other namespaces in the last hour, as the statuses of that work say.

A new operator reads every job, and knows it again.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from inference_operator.state.objects import Job

_WINDOW = timedelta(hours=1)


class Preemptions:
    """The preemptions across namespaces, each by the uid of the work that made room and the time."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, datetime], str] = {}

    def read(self, job: Job) -> None:
        """Note what a job's status says; reading it again changes nothing."""
        told = job.status.last_preemption
        if told is not None and told.namespace != job.key.namespace:
            self._found[job.uid, told.time] = told.namespace

    def by_namespace(self, now: datetime) -> Mapping[str, int]:
        """Return how often each namespace's work has preempted that of others in the hour before `now`."""
        self._found = {key: namespace for key, namespace in self._found.items() if now - key[1] < _WINDOW}
        return Counter(self._found.values())
