"""What the door is made of: the services and their workers, frozen."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from inference_operator.api.gateway import ServeGateway
from inference_operator.api.job import InferenceJobSpec, Serve, wanted_replicas
from inference_operator.state.finished import is_finished
from inference_operator.state.objects import Job, Key, Model, Pod, PodPhase, Reading
from inference_operator.workers.source import default_version, model_source, pinned_version, stand_in

# What a caller can name in a path without escapes; other names come only of models by URI.
_NAME = re.compile(r"[A-Za-z0-9._-]+")
NO_OPTIONS = ServeGateway()
NO_ZONES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, order=True)
class Backend:
    """A worker as callers reach it. `uid` is its pod's.

    One that drains answers what it has, and is given nothing new; but if it is the `last`, it takes requests until another does.
    Of a service that sleeps the `first` has taken requests longest.
    """

    address: str
    uid: str
    draining: bool = False
    zone: str = ""
    # Of the file that it has loaded, as it says; empty while it has not said.
    digest: str = ""
    last: bool = False
    first: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """All workers of one version of a model in a namespace, whichever jobs they are of.

    `default` is set on one version of each model: it answers callers who name none, but for the shares of the others (`options`).
    """

    namespace: str
    model: str
    version: str
    default: bool
    backends: tuple[Backend, ...]
    options: ServeGateway = NO_OPTIONS
    # The jobs whose workers these are, and whether these speak TLS.
    jobs: tuple[Key, ...] = ()
    tls: bool = False

    @property
    def live(self) -> bool:
        """Whether a worker takes new requests."""
        return any(not backend.draining for backend in self.backends)

    @property
    def holds(self) -> bool:
        """Whether requests wait for a worker: there is none, and one comes for them."""
        return self.options.idle_seconds is not None and not self.live


def services(
    jobs: Iterable[Job],
    models: Mapping[Key, Model],
    pods: Mapping[str, Iterable[Pod]],
    readings: Mapping[str, Reading],
    *,
    zones: Mapping[str, str] = NO_ZONES,
    tls: bool = False,
) -> tuple[Service, ...]:
    """All services, sorted. `pods` are by their job's uid, `readings` by their pod's, `zones` by the node's name.

    A service without workers is one, too.

    With `tls`, jobs whose workers speak TLS are among them. Where one of a version does, the others of it are left out: nobody's
    request goes in plain text because another job allows it.
    """
    found: dict[tuple[str, str, str], list[Job]] = {}
    for job in sorted(jobs, key=lambda job: job.key):
        if (named := _named(job, models, tls=tls)) is not None:
            found.setdefault((job.key.namespace, *named), []).append(job)
    defaults = _defaults(found, models)
    return tuple(
        _service(named, [job for job in found[named] if _speaks_tls(job)] or found[named], pods, readings, zones, defaults)
        for named in sorted(found)
    )


def _service(
    named: tuple[str, str, str],
    jobs: Iterable[Job],
    pods: Mapping[str, Iterable[Pod]],
    readings: Mapping[str, Reading],
    zones: Mapping[str, str],
    defaults: Mapping[tuple[str, str], str],
) -> Service:
    namespace, model, version = named
    owners = tuple(jobs)
    workers = [(job, pod) for job in owners for pod in pods.get(job.uid, ())]
    seen = (_backend(pod, job, readings.get(pod.uid), zones.get(pod.node or "", "")) for job, pod in workers)
    backends = _with_last(tuple(sorted(filter(None, seen))), owners)
    options = next((given for job in owners if (given := _options(job)) is not None), NO_OPTIONS)
    return Service(
        namespace,
        model,
        version,
        defaults[namespace, model] == version,
        _with_first(backends, [pod for _, pod in workers]) if options.idle_seconds is not None else backends,
        options,
        tuple(job.key for job in owners),
        any(map(_speaks_tls, owners)),
    )


def _with_last(backends: tuple[Backend, ...], owners: Iterable[Job]) -> tuple[Backend, ...]:
    """The workers, where none of them takes requests and others will come: then those that drain answer until these do."""
    wanted = any(job.spec is not None and wanted_replicas(job.spec) > 0 for job in owners)
    if not wanted or any(not backend.draining for backend in backends):
        return backends
    return tuple(replace(backend, last=True) for backend in backends)


def _with_first(backends: tuple[Backend, ...], pods: Iterable[Pod]) -> tuple[Backend, ...]:
    """The workers, with that one marked whose pod is the oldest of those that take requests."""
    live = {backend.uid for backend in backends if not backend.draining}
    oldest = min(((pod.created, pod.uid) for pod in pods if pod.uid in live and pod.created is not None), default=None)
    return backends if oldest is None else tuple(replace(backend, first=backend.uid == oldest[1]) for backend in backends)


def _speaks_tls(job: Job) -> bool:
    return job.spec is not None and job.spec.serve is not None and job.spec.serve.tls is not None


def _options(job: Job) -> ServeGateway | None:
    return job.spec.serve.gateway if job.spec is not None and job.spec.serve is not None else None


def _named(job: Job, models: Mapping[Key, Model], *, tls: bool) -> tuple[str, str] | None:
    """The model's name and version as the job's workers answer to them; None for what the door does not lead to."""
    spec = job.spec
    if spec is None or spec.input is not None or spec.suspend or job.deleting or is_finished(job):
        return None
    if spec.serve is not None and spec.serve.tls is not None and not (tls and _can_be_verified(spec.serve)):
        return None
    source = _source(job, spec, models.get(Key(job.key.namespace, spec.model)))
    return source if source is not None and all(_NAME.fullmatch(name) for name in source) else None


def _can_be_verified(serve: Serve) -> bool:
    """Whether the door knows its workers by the operator's authority, and callers need no certificate: their tokens pass it."""
    by_token = serve.authentication is None or serve.authentication.jwt is not None
    return serve.tls is not None and serve.tls.secret_name is None and by_token


def _source(job: Job, spec: InferenceJobSpec, model: Model | None) -> tuple[str, str] | None:
    version = pinned_version(job, spec, model or stand_in(job, spec))
    if version is None and ":" not in spec.model:
        # An InferenceModel, or a version of it, that is not there.
        return None
    source = model_source(spec, version)
    return source.name, source.version


def _backend(pod: Pod, job: Job, reading: Reading | None, zone: str) -> Backend | None:
    """The worker as the door sees it; None for one that takes no requests. An address that is none would spoil the others' news."""
    # A uid in a label of another namespace is a forgery: owners and what they own share theirs.
    if pod.key.namespace != job.key.namespace or pod.phase is not PodPhase.RUNNING or pod.over or pod.address is None:
        return None
    try:
        address = str(ipaddress.ip_address(pod.address))
    except ValueError:
        return None
    facts = reading.telemetry.model if reading is not None else None
    found = Backend(address, pod.uid, zone=zone, digest=facts.digest if facts is not None else "")
    if pod.deleting or (reading is not None and reading.telemetry.draining):
        return replace(found, draining=True)
    return found if pod.ready else None


def _defaults(found: Iterable[tuple[str, str, str]], models: Mapping[Key, Model]) -> dict[tuple[str, str], str]:
    """Which version answers those who name none: the InferenceModel's default while it is served, else the last by name."""
    chosen: dict[tuple[str, str], str] = {}
    for namespace, name, version in sorted(found):
        model = models.get(Key(namespace, name))
        wanted = default_version(model.spec) if model is not None and model.spec is not None else None
        if chosen.get((namespace, name)) is None or chosen[namespace, name] != wanted:
            chosen[namespace, name] = version
    return chosen
