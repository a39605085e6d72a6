"""How long a job will take on an accelerator class: measured, or assumed and said to be."""

from dataclasses import dataclass, field
from math import exp

from inference_operator.api.instants import EARLIEST
from inference_operator.api.job import Backend
from inference_operator.api.model import DeclaredProfile, Profile
from inference_operator.state.objects import Model
from inference_protocol.messages import ModelFacts, ModelSource

# Measured by `make bench NAME=scheduling`: with less of it plans break, with more of it work is turned away that would be on time.
_CAUTION = 0.4
# How far declared figures are off, as a rule: by a third either way.
_DECLARED_SPREAD = 0.3


Key = tuple[str, str, Backend, int]
"""What tells one profile from another: file, accelerator class, back end, batch size."""


def key_of(profile: Profile) -> Key:
    """The profile's key."""
    return profile.digest, profile.accelerator, profile.backend, profile.batch_size


@dataclass(frozen=True, slots=True)
class Subject:
    """What runs: a verified file (None where it is not pinned) or its INT8 variant, and what computes it (never AUTO)."""

    digest: str | None
    variant: bool
    backend: Backend

    def is_of(self, profile: Profile) -> bool:
        """Whether the profile is of this."""
        verified = profile.variant_of or profile.digest
        return (
            profile.backend is self.backend and (profile.variant_of is not None) is self.variant and self.digest in (None, verified)
        )


def wanted(source: ModelSource, backend: Backend) -> Subject:
    """What a model from there will run as."""
    return Subject(source.digest, source.quantization is not None, backend)


def measured(facts: ModelFacts) -> Subject:
    """What a worker has run."""
    return Subject(facts.digest, facts.variant is not None, Backend(facts.backend))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds to load the model and to do the work. `measured` is False where nothing stands behind the numbers.

    `spread` is the standard deviation of what is so over what is expected, as a logarithm: 0.1 is about ten per cent either way.
    `items_per_second` is the pace where one is known, also where the number of items is not.
    """

    load_seconds: float
    work_seconds: float
    measured: bool
    spread: float = 0.0
    items_per_second: float | None = None
    # From a cold start to done; and what plans reckon with: longer than it takes in two of three cases, if errors are lognormal.
    # Passes ask ten thousand estimates for them, several times each.
    total_seconds: float = field(init=False, repr=False, compare=False)
    cautious_seconds: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        total = self.load_seconds + self.work_seconds
        object.__setattr__(self, "total_seconds", total)
        object.__setattr__(self, "cautious_seconds", total * exp(_CAUTION * self.spread))

    def items_within(self, seconds: float, *, warm: bool) -> int | None:
        """How many items a worker, warm or not, answers in so many seconds; None where no pace is known."""
        if self.items_per_second is None:
            return None
        return max(0, int((seconds - (0.0 if warm else self.load_seconds)) * self.items_per_second))


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is assumed while nothing is measured."""

    load_seconds: float
    work_seconds: float


def estimate(
    model: Model | None,
    subject: Subject,
    *,
    accelerator: str,
    batch_size: int,
    items: int | None,
    serving: bool,
    assumed: Assumptions,
) -> Estimate:
    """Look the profile up; a serving job's work is done when it is ready, so only the load counts."""
    found = find_profile(model, subject, accelerator=accelerator, batch_size=batch_size)
    profile = found or _declared(model, accelerator, subject.backend)
    if profile is None:
        return Estimate(assumed.load_seconds, 0.0 if serving else assumed.work_seconds, measured=False)
    if serving:
        return Estimate(profile.load_seconds, 0.0, measured=True, spread=profile.spread or 0.0)
    pace = profile.items_per_second
    if pace <= 0:
        return Estimate(profile.load_seconds, assumed.work_seconds, measured=False)
    if items is None:
        return Estimate(profile.load_seconds, assumed.work_seconds, measured=False, items_per_second=pace)
    return Estimate(profile.load_seconds, items / pace, measured=True, spread=profile.spread or 0.0, items_per_second=pace)


def _declared(model: Model | None, accelerator: str, backend: Backend) -> Profile | None:
    """What the model's author expects of this back end, else of any, as a profile that is known to be a guess."""
    declared = model.spec.declared_profiles if model is not None and model.spec is not None else []
    of_class: dict[Backend, DeclaredProfile] = {d.backend: d for d in declared if d.accelerator == accelerator}
    found = of_class.get(backend) or of_class.get(Backend.AUTO)
    if found is None:
        return None
    return Profile(
        # Of no file: it is never looked up by it.
        digest=f"sha256:{0:064}",
        accelerator=accelerator,
        backend=backend,
        batch_size=1,
        items_per_second=found.items_per_second,
        load_seconds=found.load_seconds,
        spread=_DECLARED_SPREAD,
        observed_time=EARLIEST,
    )


def find_profile(model: Model | None, subject: Subject, *, accelerator: str, batch_size: int) -> Profile | None:
    """The profile at this batch size, or at the nearest; of the newest measured file where several fit."""
    if model is None:
        return None
    fitting = [p for p in model.status.profiles if p.accelerator == accelerator and subject.is_of(p)]
    if not fitting:
        return None
    newest = max(fitting, key=lambda p: p.observed_time).digest
    return min((p for p in fitting if p.digest == newest), key=lambda p: (abs(p.batch_size - batch_size), p.batch_size))
