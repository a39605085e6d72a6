"""Profiles from what workers measured: one entry a file, accelerator class and batch size; moved slowly, written rarely."""

from dataclasses import replace
from datetime import datetime

from inference_operator.domain.cluster import Model
from inference_operator.domain.model import InferenceModelStatus, Profile
from inference_protocol.messages import ModelFacts

_LIMIT = 128
# A new measurement counts this much beside what is known.
_WEIGHT = 0.3
# What moved less than this is not worth a write.
_NEWS = 0.1


def learned(
    model: Model | None, facts: ModelFacts | None, *, accelerator: str, now: datetime, since: datetime | None = None
) -> InferenceModelStatus | None:
    """The model's status with this measurement in it; None when that would say nothing new.

    `since` is when the worker started, for workers that are looked at again and again: each speaks once.
    """
    if model is None or facts is None or facts.items_per_second is None or not accelerator:
        return None
    load = facts.load_seconds + facts.warmup_seconds
    key = (facts.digest, accelerator, facts.batch_size)
    known = next((p for p in model.status.profiles if (p.digest, p.accelerator, p.batch_size) == key), None)
    if known is not None and since is not None and known.observed_time >= since:
        return None
    fresh = Profile(
        digest=facts.digest,
        accelerator=accelerator,
        batch_size=facts.batch_size,
        items_per_second=_round(facts.items_per_second if known is None else _mix(known.items_per_second, facts.items_per_second)),
        load_seconds=_round(load if known is None else _mix(known.load_seconds, load)),
        memory_bytes=max(facts.memory_bytes, known.memory_bytes if known is not None else 0),
        samples=known.samples + 1 if known is not None else 1,
        observed_time=now.replace(microsecond=0),
    )
    if (
        known is not None
        and _near(known.items_per_second, fresh.items_per_second)
        and _near(known.load_seconds, fresh.load_seconds)
    ):
        return None
    others = [p for p in model.status.profiles if (p.digest, p.accelerator, p.batch_size) != key]
    kept = sorted(others, key=lambda p: p.observed_time)[-(_LIMIT - 1) :]
    profiles = sorted([*kept, fresh], key=lambda p: (p.digest, p.accelerator, p.batch_size))
    return replace(model.status, observed_generation=model.generation, profiles=profiles)


def _mix(old: float, new: float) -> float:
    return (1 - _WEIGHT) * old + _WEIGHT * new


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= _NEWS * max(a, b, 1e-9)


def _round(value: float) -> float:
    return float(f"{value:.4g}")
