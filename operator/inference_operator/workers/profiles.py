"""Profiles from what workers measured: one a file, accelerator class, back end and batch size; moved slowly, written rarely."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from math import log

from inference_operator.accelerators import CPU_PROVIDER, AcceleratorClass
from inference_operator.api.job import Backend
from inference_operator.api.model import InferenceModelStatus, Profile
from inference_operator.scheduling.estimate import Key, key_of
from inference_operator.state.objects import Model
from inference_protocol.messages import ModelFacts

_LIMIT = 128
# A new measurement counts this much beside what is known, and more if that is old: half of what was known is gone in a week.
_WEIGHT = 0.3
_HALF_LIFE_SECONDS = 7 * 86400.0
# One measurement among many that says something altogether else moves the profile by this factor at most: a robust mean.
_SURPRISE = 2.0
_LARGEST_SPREAD = 2.0
# What moved less than this is not worth a write.
_NEWS = 0.1


def learned(
    model: Model | None,
    facts: ModelFacts | None,
    *,
    accelerator: str,
    classes: Mapping[str, AcceleratorClass],
    now: datetime,
    since: datetime | None = None,
) -> InferenceModelStatus | None:
    """The model's status with this measurement in it; None when that would say nothing new.

    What a worker measured on a CPU is not so of the class of devices that it fell back from. `since` is when a worker started
    (serve) or its work ended (batch): what was learned after that has it in already.
    """
    if model is None or facts is None or facts.items_per_second is None or not accelerator:
        return None
    if _fell_back(facts, classes.get(accelerator)):
        return None
    load = facts.start_seconds
    key: Key = (facts.variant or facts.digest, accelerator, Backend(facts.backend), facts.batch_size)
    known = next((p for p in model.status.profiles if key_of(p) == key), None)
    if known is not None and since is not None and known.observed_time >= since:
        return None
    weight = _weight(known, now)
    fresh = Profile(
        digest=facts.variant or facts.digest,
        variant_of=facts.digest if facts.variant is not None else None,
        accelerator=accelerator,
        backend=Backend(facts.backend),
        batch_size=facts.batch_size,
        items_per_second=_round(
            facts.items_per_second if known is None else _mix(known.items_per_second, facts.items_per_second, weight, known.samples)
        ),
        load_seconds=_round(load if known is None else _mix(known.load_seconds, load, weight, known.samples)),
        memory_bytes=max(facts.memory_bytes, known.memory_bytes if known is not None else 0),
        device_bytes=max(facts.device_bytes, known.device_bytes if known is not None else 0),
        spread=_round(_spread(known, facts.items_per_second, weight)) if known is not None else None,
        samples=known.samples + 1 if known is not None else 1,
        observed_time=now.replace(microsecond=0),
    )
    if known is not None and _is_near(known, fresh):
        return None
    others = [p for p in model.status.profiles if key_of(p) != key]
    kept = sorted(others, key=lambda p: p.observed_time)[-(_LIMIT - 1) :]
    profiles = sorted([*kept, fresh], key=key_of)
    return replace(model.status, profiles=profiles)


def _fell_back(facts: ModelFacts, of_class: AcceleratorClass | None) -> bool:
    """Whether a CPU computed where the class has devices. Other back ends than ONNX Runtime never fall back."""
    return of_class is not None and facts.provider == CPU_PROVIDER != of_class.provider_names[0]


def _weight(known: Profile | None, now: datetime) -> float:
    age = (now - known.observed_time).total_seconds() if known is not None else 0.0
    return max(_WEIGHT, 1 - float(0.5 ** (max(age, 0.0) / _HALF_LIFE_SECONDS)))


def _mix(old: float, new: float, weight: float, samples: int) -> float:
    if samples > 2 and old > 0:
        new = min(max(new, old / _SURPRISE), old * _SURPRISE)
    return (1 - weight) * old + weight * new


def _spread(known: Profile, items_per_second: float, weight: float) -> float:
    """The mean distance of measurements from what was expected, as logarithms."""
    if known.items_per_second <= 0 or items_per_second <= 0:
        return 0.0
    distance = min(abs(log(items_per_second / known.items_per_second)), _LARGEST_SPREAD)
    return (1 - weight) * (known.spread or 0.0) + weight * distance


def _is_near(known: Profile, fresh: Profile) -> bool:
    return (
        _near(known.items_per_second, fresh.items_per_second)
        and _near(known.load_seconds, fresh.load_seconds)
        and _near(known.device_bytes, fresh.device_bytes)
    )


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= _NEWS * max(a, b, 1e-9)


def _round(value: float) -> float:
    return float(f"{value:.4g}")
