"""A batch in a queue is placed on what its quota is of: one accelerator class, and the nodes of its flavors."""

from dataclasses import replace

from inference_operator.queueing.admission import Admission, Admitted
from inference_operator.scheduling.requirements import pod_requirements
from inference_operator.scheduling.types import Option
from inference_operator.workers.resolve import ResolvedJob


def queued_class(resolved: ResolvedJob) -> str:
    """Return the accelerator class whose quota a batch asks for: the one that it names, or else the first that suits it."""
    return resolved.options[0].accelerator


def narrowed(resolved: ResolvedJob, found: Admission) -> ResolvedJob:
    """Return a batch in a queue with no other class than that of its quota, and no other nodes than those of its flavors.

    What its worker is made of stays as it was: no attempt is out of date because Kueue has changed its mind.
    """
    labels = found.node_labels if isinstance(found, Admitted) else ()
    return replace(
        resolved,
        spec=replace(resolved.spec, node_selector={**dict(labels), **resolved.spec.node_selector}),
        options=(_on(resolved.options[0], labels),),
    )


def _on(option: Option, labels: tuple[tuple[str, str], ...]) -> Option:
    asked = option.requirements
    # Where a flavor and the job contradict each other, both pairs stand here, and no node fits.
    selector = tuple(sorted({*asked.node_selector, *labels}))
    requirements = pod_requirements(
        asked.amounts, selector, asked.tolerations, asked.volumes, asked.claims, user_namespace=asked.user_namespace
    )
    return replace(option, requirements=requirements)
