"""What an InferenceModel's status says of the model itself: whether its spec can be used, and which jobs use it.

Jobs come and go by the thousand, and their model must not be written for each: a model turns InUse with its first job, and after
that the jobs are counted now and then (docs/adr/0003).
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from heapq import nsmallest
from typing import NamedTuple

from inference_operator.api.conditions import ConditionType, Reason, Truth, UndatedCondition, dated
from inference_operator.api.instants import shift
from inference_operator.api.job import Backend
from inference_operator.api.model import InferenceModelSpec, InferenceModelStatus, ModelUsage, ModelVersion
from inference_operator.settings import Settings
from inference_operator.state.objects import Model
from inference_operator.workers import backend as backends
from inference_operator.workers.actions import Action, Plan, WriteModelStatus
from inference_operator.workers.fetch_rules import location_fault
from inference_operator.workers.source import default_version
from inference_protocol.uris import UriError, parse_uri

# Jobs of a model that is in use are counted so often.
COUNT_SECONDS = 30.0
_NAMES = 10
_VERSIONS_LENGTH = 1024


class _Fault(NamedTuple):
    """Why a version can't be used."""

    reason: Reason
    message: str


def is_count_due(model: Model, counted: datetime | None, now: datetime) -> bool:
    """Return whether a model's jobs are to be counted: the first job is told at once, all later changes now and then.

    `counted` is when they were counted last, which no status tells where the count was the same.
    """
    usage = model.status.usage
    if usage is None or not usage.jobs:
        return True
    return now >= shift(max(usage.observed_time, counted or usage.observed_time), COUNT_SECONDS)


def with_model_status(plan: Plan, model: Model, users: AbstractSet[str] | None, settings: Settings, now: datetime) -> Plan:
    """Return a pool's plan that also says how its model stands.

    `users` are the names of the jobs that use it; None while the last count stands.
    """
    if model.unreadable is not None:
        return plan
    told = next((action.status for action in plan.actions if isinstance(action, WriteModelStatus)), model.status)
    status = model_status(replace(model, status=told), users, settings, now)
    actions: tuple[Action, ...] = tuple(action for action in plan.actions if not isinstance(action, WriteModelStatus))
    if status != model.status:
        actions = (*actions, WriteModelStatus(model.key, model.uid, status, model.resource_version))
    if status.usage is None or not status.usage.jobs:
        return Plan(actions, plan.recheck)
    again = shift(now if users is not None else status.usage.observed_time, COUNT_SECONDS)
    return Plan(actions, min(plan.recheck, again) if plan.recheck is not None else again)


def model_status(model: Model, users: AbstractSet[str] | None, settings: Settings, now: datetime) -> InferenceModelStatus:
    """Return the model's status with what is so of its spec and of its jobs; what others write stays as it is."""
    before = model.status
    usage = _usage(before.usage, users, now)
    conditions = (*_ready(model, settings), *_in_use(usage))
    return replace(
        before,
        observed_generation=model.generation,
        conditions=list(dated(conditions, before=before.conditions, generation=model.generation, now=now)),
        versions=_cut(",".join(one.name for one in model.spec.versions)) if model.spec is not None else None,
        default_version=default_version(model.spec) if model.spec is not None else None,
        usage=usage,
    )


def _usage(before: ModelUsage | None, users: AbstractSet[str] | None, now: datetime) -> ModelUsage | None:
    if users is None:
        return before
    fresh = ModelUsage(jobs=len(users), names=nsmallest(_NAMES, users), observed_time=now.replace(microsecond=0))
    if before is not None and not users and not before.jobs:
        # Nothing waits for the next count of none.
        return before
    return fresh if before is None or (before.jobs, before.names) != (fresh.jobs, fresh.names) else before


def _in_use(usage: ModelUsage | None) -> Iterator[UndatedCondition]:
    if usage is None:
        return
    if not usage.jobs:
        yield UndatedCondition(ConditionType.IN_USE, Truth.FALSE, Reason.NOT_USED, "no job that has not ended names it")
        return
    jobs = "1 job uses it" if usage.jobs == 1 else f"{usage.jobs} jobs use it"
    more = f" and {usage.jobs - len(usage.names)} more" if usage.jobs > len(usage.names) else ""
    yield UndatedCondition(ConditionType.IN_USE, Truth.TRUE, Reason.USED_BY_JOBS, f"{jobs}: {', '.join(usage.names)}{more}")


def _ready(model: Model, settings: Settings) -> Iterator[UndatedCondition]:
    """Ready, and Stalled where a spec can't be used: only its author can change that, and kstatus reads it as failed."""
    if model.spec is None:
        yield from _stalled(_Fault(Reason.INVALID_SPEC, f"the spec can't be read: {model.invalid}"))
        return
    default = default_version(model.spec)
    if default not in [one.name for one in model.spec.versions]:
        known = ", ".join(one.name for one in model.spec.versions)
        yield from _stalled(
            _Fault(
                Reason.MODEL_VERSION_UNKNOWN,
                f"defaultVersion is {default!r}, and the versions are {known}; add it, or name another",
            )
        )
        return
    faults = {one.name: fault for one in model.spec.versions if (fault := _fault(one, settings)) is not None}
    if default in faults:
        fault = faults[default]
        yield from _stalled(_Fault(fault.reason, f"version {default!r}, the default, can't be used: {fault.message}"))
        return
    text = f"version {default!r} is what jobs take that name none"
    if faults:
        text += "; " + "; ".join(f"version {name!r} can't be used: {fault.message}" for name, fault in faults.items())
    if unknown := _unknown_classes(model.spec, settings):
        text += f"; what it says of accelerator {', '.join(unknown)} is not used: the operator has no such class"
    yield UndatedCondition(ConditionType.READY, Truth.TRUE, Reason.USABLE, text)


def _unknown_classes(spec: InferenceModelSpec, settings: Settings) -> list[str]:
    """The accelerator classes that profiles or resources are declared for and that there are not."""
    named = {one.accelerator for one in spec.declared_profiles} | {one.accelerator for one in spec.resources}
    return sorted(named - settings.accelerators.keys())


def _stalled(fault: _Fault) -> Iterator[UndatedCondition]:
    yield UndatedCondition(ConditionType.READY, Truth.FALSE, *fault)
    yield UndatedCondition(ConditionType.STALLED, Truth.TRUE, *fault)


def _fault(version: ModelVersion, settings: Settings) -> _Fault | None:
    """Why no job could use a version; None where that is for a worker to find out."""
    rows = version.quantization
    uris = (version.uri, *(filter(None, (rows.evaluation, rows.calibration, rows.labels)) if rows is not None else ()))
    for uri in uris:
        try:
            parse_uri(uri)
        except UriError as error:
            return _Fault(Reason.INVALID_SPEC, str(error))
    files = filter(None, (*uris, version.signature_uri))
    if (forbidden := next(filter(None, (location_fault(text, settings) for text in files)), None)) is not None:
        return _Fault(Reason.HOST_FORBIDDEN, forbidden)
    chosen = backends.chosen(Backend.AUTO, version.format)
    missing = backends.fault(chosen, version.format, settings.backends)
    return _Fault(Reason.BACKEND_UNAVAILABLE, missing) if missing is not None else None


def _cut(text: str) -> str:
    return text if len(text) <= _VERSIONS_LENGTH else f"{text[: _VERSIONS_LENGTH - 1]}…"
