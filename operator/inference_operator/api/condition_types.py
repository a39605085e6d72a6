"""What may be observed of an object, each type with its meaning.

kstatus (sigs.k8s.io/cli-utils) reads a custom kind so: `Reconciling=True` is in progress, `Stalled=True` is failed, `Ready=True` is
current, `Ready` False or Unknown is in progress, and nothing of these is current. So a finished failure must be Stalled, and a
suspended job, which is where its user wants it, carries none of the three.
"""

from enum import StrEnum
from typing import Self


class ConditionType(StrEnum):
    """Every condition type that an InferenceJob or InferenceModel may carry."""

    meaning: str

    # Without a default a lookup by the word alone, ConditionType("Ready"), would not pass the type check.
    def __new__(cls, word: str, meaning: str = "") -> Self:
        """Return the member: a plain string that carries its meaning."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    ACCEPTED = "Accepted", "The job is valid, and its model is known."
    PLACED = "Placed", "Every worker of the job has a place."
    READY = "Ready", "A service answers, a batch has succeeded, or an InferenceModel can be used."
    SUCCEEDED = "Succeeded", "The job has ended, well (True) or not (False); Unknown while a batch is open."
    SUSPENDED = "Suspended", "spec.suspend has stopped the job."
    IN_USE = "InUse", "A job that has not ended names the InferenceModel."
    AUTOSCALED = "Autoscaled", "An autoscaler sets the number of workers; only there with autoscaling.mode HPA or External."
    PREFETCHED = "Prefetched", "Nodes have the model of a roll-out in their caches; only there during one, where nodes have caches."
    RECONCILING = "Reconciling", "The job is on its way, or waits; kstatus reads InProgress."
    STALLED = "Stalled", "The job or InferenceModel needs a change before it can go on; kstatus reads Failed."
