"""A hash of what a worker is made from: when it changes, running workers are out of date."""

import msgspec

from inference_operator.decisions import admit
from inference_operator.domain.cluster import Observed
from inference_operator.domain.names import short_hash
from inference_operator.settings import Settings


def revision(observed: Observed, settings: Settings) -> str:
    """The revision that the job's workers should have.

    A batch keeps running when only its pod template or the worker's image changes: restarting it would lose time and gain nothing.
    """
    spec = observed.job.spec
    assert spec is not None, "only admitted jobs have a revision"
    source = admit.source(observed)
    parts: list[object] = [source, spec.batch_size, spec.accelerator, spec.backend]
    if spec.input is not None:
        parts += [repr(spec.input), repr(spec.output)]
    else:
        parts += [repr(spec.resources), repr(spec.template), sorted(spec.node_selector.items()), settings.worker_image]
    return short_hash(msgspec.json.encode(parts).decode())
