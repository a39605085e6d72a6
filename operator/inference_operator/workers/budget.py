"""The PodDisruptionBudget of a serving job: a drain takes one of its workers at a time. Pure.

A service of one worker has none: it would hold back every drain and every node autoscaler, and its worker answers until its
successor does (docs/concepts/failure-detection.md).
"""

from inference_operator.api import names
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import ApplyBudget, DeleteBudget
from inference_operator.workers.pod import Manifest, owner_reference
from inference_operator.workers.service import labels


def plan_budget(
    observed: Observed, wanted: int, unplaced: int = 0, *, held_up: bool = False
) -> tuple[ApplyBudget | DeleteBudget, ...]:
    """Bring the budget to what it should say for so many wanted workers, `unplaced` of which have a place nowhere.

    Those hold no drain back, which could wait for them for ever; the last worker that answers does. One that was refused just now
    is not tried again while it is `held_up`.
    """
    least, found = min(wanted - 1, max(1, wanted - unplaced - 1)), observed.budget
    if found is not None and least < 1:
        return (DeleteBudget(found.key, found.uid, "one worker holds no drain back"),)
    if least < 1 or held_up or (found is not None and found.min_available == least):
        return ()
    return (ApplyBudget(_manifest(observed, least), found.uid if found is not None else None, f"{least} of {wanted} workers stay"),)


def _manifest(observed: Observed, least: int) -> Manifest:
    job = observed.job
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": names.budget_name(job.key.name),
            "namespace": job.key.namespace,
            "labels": labels(job),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "minAvailable": least,
            "selector": {"matchLabels": names.selector(job.uid)},
            # One that does not answer is nobody's loss.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
