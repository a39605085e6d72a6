"""A hash of what a worker is made from: when it changes, running workers are out of date."""

from dataclasses import fields, is_dataclass

import msgspec

from inference_operator.api.job import ModelControl
from inference_operator.api.names import short_hash
from inference_operator.settings import Settings
from inference_operator.state.objects import Observed
from inference_operator.workers.backend import chosen
from inference_operator.workers.pod import images
from inference_operator.workers.source import model_source


def revision(observed: Observed, settings: Settings) -> str:
    """The revision that the job's workers should have.

    A batch keeps running when only its pod template or the worker's image changes: restarting it would lose time and gain nothing.
    """
    spec = observed.job.spec
    assert spec is not None, "only admitted jobs have a revision"
    source = model_source(observed)
    parts: list[object] = [source, spec.batch_size, spec.accelerator, spec.backend]
    if spec.input is not None:
        parts += [_told(spec.input), _told(spec.output)]
    else:
        parts += [_told(spec.resources), _told(spec.template), sorted(spec.node_selector.items())]
        parts += images(settings, chosen(spec.backend, source.format).backend)
        if spec.serve is not None and spec.serve.model_control is not ModelControl.NONE:
            parts.append(spec.serve.model_control)
    return short_hash(msgspec.json.encode(parts).decode())


def _told(part: object) -> dict[str, object] | None:
    """What the user has said there. A field that a new version adds stands at its default, and changes nothing."""
    if not is_dataclass(part) or isinstance(part, type):
        return None
    return {f.name: v for f in fields(part) if (v := getattr(part, f.name)) not in (None, {}, [], f.default)}
