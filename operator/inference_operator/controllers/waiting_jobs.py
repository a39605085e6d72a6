"""Wakes the jobs that wait, when what they read of their model has changed."""

from inference_operator.controllers.scheduling_loop import SchedulingLoop, Wake
from inference_operator.jobs.demand import what_waiting_jobs_read
from inference_operator.state.objects import Key, Model
from inference_operator.state.request import job_request
from inference_operator.state.store import Store


class WaitingJobs:
    """The jobs of a model that want a place."""

    def __init__(self, store: Store, scheduling: SchedulingLoop, wake: Wake) -> None:
        self._store = store
        self._scheduling = scheduling
        self._wake = wake

    def wake_after_write(self, before: Model) -> None:
        """Wake them for a status that we have written ourselves: it is no news when the watch shows it."""
        after = self._store.models.get(before.key)
        if after is not before:
            self.wake_if_news(before.key, before, after)

    def wake_if_news(self, model: Key, before: Model | None, after: Model | None) -> None:
        """Wake them if a status says anything that a waiting job reads."""
        if what_waiting_jobs_read(before) == what_waiting_jobs_read(after):
            return
        for request in map(job_request, self._store.jobs_of(model)):
            if self._scheduling.waits(request):
                self._wake(request)
