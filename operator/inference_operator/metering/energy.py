"""What work has cost: by the devices' own counters where they were watched all along, else by the declared watts of the class."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import pairwise

from inference_operator.api.job_status import EnergyMeter, EnergySource, EnergyStatus, ProgressStatus
from inference_operator.settings import Settings
from inference_operator.state.power import Drawn, PowerSample
from inference_operator.state.runner import Attempt

# So much of an attempt must lie between two samples of each of its devices to count as measured.
_COVERED = 0.9
# Old samples are thinned out to gaps of this share of their age: a week of them, one each ten seconds, is some hundred and fifty.
_SPARSE = 0.1
# Now and then, since it takes a look at all of them.
_THINNED_EVERY = 16


def taken_in(drawn: Drawn, sample: PowerSample) -> Drawn:
    """One more sample. A counter that fell, or that another meter reads, has begun anew: what it said before is of no use."""
    if drawn and (sample.joules < drawn[-1].joules or sample.time <= drawn[-1].time or sample.meter is not drawn[-1].meter):
        return (sample,)
    if not drawn or len(drawn) % _THINNED_EVERY:
        return (*drawn, sample)
    kept = [drawn[0]]
    for here, after in pairwise((*drawn[1:], sample)):
        if after.time - kept[-1].time > _SPARSE * (sample.time - after.time):
            kept.append(here)
    return (*kept, sample)


def joules_between(drawn: Drawn, begin: datetime, end: datetime) -> float | None:
    """What a device drew in a time; None when too little of it was watched. The rest is taken to have drawn as much a second."""
    if len(drawn) < 2 or end <= begin:
        return None
    first, last = max(begin, drawn[0].time), min(end, drawn[-1].time)
    covered, whole = (last - first).total_seconds(), (end - begin).total_seconds()
    if covered < _COVERED * whole:
        return None
    return (_counter_at(drawn, last) - _counter_at(drawn, first)) * whole / covered


def _counter_at(drawn: Drawn, time: datetime) -> float:
    """Between two samples the draw is taken to be even."""
    after = bisect_left(drawn, time, key=lambda sample: sample.time)
    if after == 0:
        return drawn[0].joules
    low, high = drawn[after - 1], drawn[after]
    share = (time - low.time) / (high.time - low.time)
    return low.joules + share * (high.joules - low.joules)


def measured_joules(meters: Mapping[str, Drawn], devices: int, begin: datetime, end: datetime) -> float | None:
    """What all the `devices` of a worker drew in a time; None unless each of them was watched."""
    if not devices or len(meters) != devices:
        return None
    found = [joules_between(drawn, begin, end) for drawn in meters.values()]
    return sum(joules for joules in found if joules is not None) if None not in found else None


def watts(meters: Mapping[str, Drawn]) -> float | None:
    """What a worker's devices draw together, by the newest two samples of each; None before there are."""
    if not meters or any(len(drawn) < 2 for drawn in meters.values()):
        return None
    return sum(_watts(*drawn[-2:]) for drawn in meters.values())


def _watts(before: PowerSample, after: PowerSample) -> float:
    return (after.joules - before.joules) / (after.time - before.time).total_seconds()


def energy_status(
    attempt: Attempt,
    meters: Mapping[str, Drawn],
    before: EnergyStatus | None,
    progress: ProgressStatus | None,
    settings: Settings,
    ended: datetime,
) -> EnergyStatus | None:
    """The energy so far with that of an attempt that has just ended. It is Measured only if that of every attempt was."""
    accelerator = settings.accelerators.get(attempt.accelerator)
    if accelerator is None or attempt.started is None:
        return before
    devices = attempt.pod.requests.get(settings.metering.resource_name, 0)
    own = _own_seconds(attempt, ended)
    # What the counters say of a service's device is mostly the service's.
    measured = measured_joules(meters, devices, attempt.started, ended) if own is None else None
    unmeasured_before = attempt.number > 1 if before is None else before.source is not EnergySource.MEASURED
    held = max(_least_seconds(attempt), (ended - attempt.started).total_seconds())
    modelled = accelerator.watts_busy * (held if own is None else own)
    joules = (modelled if measured is None else measured) + (before.joules if before is not None else 0.0)
    items = progress.completed if progress is not None else 0
    modelled_in_part = measured is None or unmeasured_before
    return EnergyStatus(
        joules=round(joules, 3),
        joules_per_item=float(f"{joules / items:.4g}") if items else None,
        source=EnergySource.MODELLED if modelled_in_part else EnergySource.MEASURED,
        meter=None if modelled_in_part else _meter(meters),
    )


def _own_seconds(attempt: Attempt, ended: datetime) -> float | None:
    """What an attempt in the slack of a service had of its device; None for one that had all of it."""
    slack = attempt.placement.slack if attempt.placement is not None else None
    if slack is None or attempt.hosted is None or attempt.started is None:
        return None
    state = attempt.hosted.state
    told = state.computed_seconds if state is not None and state.report is not None else 0.0
    return told or slack.share * (ended - attempt.started).total_seconds()


def _meter(meters: Mapping[str, Drawn]) -> EnergyMeter:
    """Who watched the devices: an exporter tells all of a node's, and a worker its only one."""
    return next(drawn[-1].meter for drawn in meters.values())


def _least_seconds(attempt: Attempt) -> float:
    """What the worker itself says that it took to load: a kubelet tells begin and end in whole seconds only."""
    facts = attempt.report.model if attempt.report is not None else None
    return facts.start_seconds if facts is not None else 0.0


def untold(before: EnergyStatus | None) -> EnergyStatus | None:
    """The same when an attempt is gone of which nobody knows what it cost: no sum of measurements is whole any more."""
    return replace(before, source=EnergySource.MODELLED, meter=None) if before is not None else None
