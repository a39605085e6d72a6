"""Hashes of what workers are made of: when one changes, running workers are out of date.

A service's worker has the hash of the pod that would be built for it now on its accelerator class, so no field that changes the pod
can fail to roll it out, and what changes on other classes does not. A batch's is that of its task: restarting it for another pod
template would lose time and gain nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import msgspec

from inference_operator.api import names
from inference_operator.api.instants import EARLIEST
from inference_operator.api.job import Backend, InferenceJobSpec
from inference_operator.api.job_status import CostTerms, Placement
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Model, Worker
from inference_operator.workers.classes import classes
from inference_operator.workers.options import worker_resources
from inference_operator.workers.pod import Manifest, worker_pod
from inference_protocol.messages import ModelSource

# What tells one worker from another of the same template: paths in the pod.
LEFT_OUT = (
    ("metadata", "name"),
    ("metadata", "labels", names.LABEL_ATTEMPT),
    ("metadata", "labels", names.LABEL_REVISION),
    # Workers of versions before it have none.
    ("metadata", "labels", names.LABEL_SERVES),
    ("metadata", "annotations", names.ANNOTATION_PLACEMENT),
    # They change nothing of how it runs.
    ("metadata", "annotations", names.ANNOTATION_MOVABLE),
    ("metadata", "annotations", names.ANNOTATION_MOVABLE_VOLUMES),
    ("spec", "affinity"),
)
# Stands for the digest of each worker's own token: whether workers take tasks tells one template from another.
_ANY_DIGEST = "of-its-own"
_NO_COST = CostTerms(latency_seconds=0.0, energy_joules=0.0, switch_seconds=0.0, total=0.0, estimated=True)


def template_placement(accelerator: str) -> Placement:
    """Return the placement of a pod that is built to be hashed."""
    return Placement(accelerator=accelerator, node="", pod="", cost=_NO_COST, alternatives=[], decision_time=EARLIEST)


def template_hash(pod: Manifest) -> str:
    """Return the hash of a pod without what is LEFT_OUT."""
    return names.short_hash(msgspec.json.encode(_stripped(pod), order="deterministic").decode())


@dataclass(frozen=True, slots=True)
class Revisions:
    """What workers should be made of now: the hash on each accelerator class that they may run on, and one of all together."""

    by_class: Mapping[str, str]
    combined: str

    @staticmethod
    def of(by_class: Mapping[str, str]) -> "Revisions":
        """Return the revisions of workers whose templates have these hashes."""
        return Revisions(by_class, names.short_hash(msgspec.json.encode(by_class, order="deterministic").decode()))

    def make(self, worker: Worker) -> bool:
        """Whether a worker is what would be made on its class now."""
        return self.by_class.get(worker.accelerator) == worker.revision


def _stripped(pod: Manifest) -> Manifest:
    result: dict[str, Any] = {"metadata": dict(pod["metadata"]), "spec": dict(pod["spec"])}
    for head, key, *rest in LEFT_OUT:
        if not rest:
            result[head].pop(key, None)
        else:
            result[head][key] = {name: value for name, value in result[head].get(key, {}).items() if name != rest[0]}
    return result


def service_revisions(
    job: Job,
    spec: InferenceJobSpec,
    model: Model | None,
    source: ModelSource,
    backend: Backend,
    *,
    mounts: Mapping[str, bool],
    settings: Settings,
) -> Revisions:
    """Return what a service's workers should have on each class that it may run on: the hash of its pod there."""
    by_class = {
        name: template_hash(
            worker_pod(
                job,
                spec,
                source,
                worker_resources(spec, model, name, settings.accelerators[name]),
                template_placement(name),
                number=0,
                revision="",
                mounts=mounts,
                settings=settings,
                backend=backend,
                task_token_digest=_ANY_DIGEST,
            )
        )
        for name in classes(spec, backend, settings)
    }
    return Revisions.of(by_class)


def task_revisions(spec: InferenceJobSpec, source: ModelSource, backend: Backend, settings: Settings) -> Revisions:
    """Return what a batch's attempts should have, which is the same on each class: the hash of its task."""
    revision = task_hash(spec, source)
    return Revisions(dict.fromkeys(classes(spec, backend, settings), revision), revision)


def task_hash(spec: InferenceJobSpec, source: ModelSource) -> str:
    """Return the hash of a batch's task: what is computed of what, and where it goes."""
    parts: list[object] = [source, spec.batch_size, spec.accelerator, spec.backend, _told(spec.input), _told(spec.output)]
    return names.short_hash(msgspec.json.encode(parts).decode())


def _told(part: object) -> dict[str, object] | None:
    """What the user has said there. A field that a new version adds stands at its default, and changes nothing."""
    if not is_dataclass(part) or isinstance(part, type):
        return None
    return {f.name: v for f in fields(part) if (v := getattr(part, f.name)) not in (None, {}, [], f.default)}
