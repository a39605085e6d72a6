"""What a worker proves itself by, and what its callers' ports show: records, and the volume with the files."""

from collections.abc import Iterator, Sequence
from typing import Any

from inference_operator.api import names
from inference_operator.api.callers import Authentication
from inference_operator.api.job import InferenceJobSpec, Serve
from inference_operator.settings import MutualTls, Settings
from inference_operator.state.objects import Job, Key, Pod
from inference_operator.workers.source import input_storage, output_storage
from inference_protocol.messages import (
    CERTIFICATE_FILE,
    CLIENT_CA_FILE,
    IDENTITY_ROOT,
    JWKS_FILE,
    KEY_FILE,
    TOKEN_FILE,
    TRUST_FILE,
    JwtRules,
    ModelSource,
    ServingTls,
    Storage,
    WorkerIdentity,
)
from inference_protocol.spiffe import operator_id
from inference_protocol.storage import ROLE_TOKEN_AUDIENCE, ROLE_TOKEN_FILE, keys_of
from inference_protocol.uris import parse_uri

Manifest = dict[str, Any]

_VOLUME = "identity"
# The kubelet renews it at 80 % of this; the worker reads it once a day.
_TOKEN_SECONDS = 3600
# Readable by whoever the worker runs as: not every pod has an fsGroup, and no other pod sees the volume.
_MODE = 0o444


def audience(settings: MutualTls) -> str:
    """Return for whom workers' tokens are: the operator's authority, and nobody else who takes tokens."""
    return f"{operator(settings)}/certificates"


def operator(settings: MutualTls) -> str:
    """Return the SPIFFE ID of the operator."""
    return operator_id(settings.trust_domain, settings.namespace, settings.account)


def worker_identity(settings: MutualTls) -> WorkerIdentity | None:
    """Return whom a worker asks for a certificate; None where mutual TLS is off."""
    if not settings.enabled:
        return None
    return WorkerIdentity(f"https://{settings.service}.{settings.namespace}.svc:{settings.port}", operator(settings))


def serving_tls(spec: InferenceJobSpec) -> ServingTls | None:
    """Return how callers' ports speak TLS; None where they are plain."""
    serve = spec.serve or Serve()
    if serve.tls is None:
        return None
    who = serve.authentication or Authentication()
    return ServingTls(
        own_certificate=serve.tls.secret_name is not None,
        client_certificates=who.client_certificates is not None,
        jwt=JwtRules(who.jwt.issuer, tuple(who.jwt.audiences)) if who.jwt is not None else None,
    )


def wants_certificate(spec: InferenceJobSpec) -> bool:
    """Whether callers are shown a certificate of the operator's authority."""
    return spec.serve is not None and spec.serve.tls is not None and spec.serve.tls.secret_name is None


def hosts(job: Key, *, headless: bool = False) -> tuple[str, ...]:
    """Return the names of the job's Service inside the cluster, the shortest last; those of the headless one before them."""
    name = f"{names.service_name(job.name)}.{job.namespace}"
    own = f"{name}.svc.cluster.local", f"{name}.svc", name
    if not headless:
        return own
    name = f"{names.headless_name(job.name)}.{job.namespace}"
    return f"{name}.svc.cluster.local", f"{name}.svc", name, *own


def shown_names(pod: Pod, job: Job | None) -> tuple[str, ...]:
    """Return the hosts' names that a worker may show to callers: those of its job's Service, where the job wants them.

    Anybody who may create pods can write another namespace's job into one: names are for pods of the job's namespace alone.
    """
    if job is None or job.spec is None or job.key.namespace != pod.key.namespace or not wants_certificate(job.spec):
        return ()
    return hosts(job.key, headless=job.spec.serve is not None and job.spec.serve.headless)


def volumes(spec: InferenceJobSpec, source: ModelSource, settings: Settings) -> list[Manifest]:
    """Return the volume; none for a worker that needs no file of it."""
    sources = [*_own(settings.mutual_tls), *_of_job(spec.serve or Serve()), *_of_stores(list(_stores(spec, source, settings)))]
    return [{"name": _VOLUME, "projected": {"defaultMode": _MODE, "sources": sources}}] if sources else []


def mounts(spec: InferenceJobSpec, source: ModelSource, settings: Settings) -> list[Manifest]:
    """Return where the worker finds it."""
    return [{"name": _VOLUME, "mountPath": IDENTITY_ROOT, "readOnly": True}] if volumes(spec, source, settings) else []


def awaited_secrets(spec: InferenceJobSpec) -> str:
    """What to add to a message while workers start: the Secrets without which the kubelet starts none."""
    wanted = [f"{name} with {' and '.join(files)}" for name, files in _secrets(spec.serve or Serve())]
    return f"; a worker starts only if there is Secret {', Secret '.join(wanted)}" if wanted else ""


def _own(settings: MutualTls) -> list[Manifest]:
    if not settings.enabled:
        return []
    token = {"audience": audience(settings), "expirationSeconds": _TOKEN_SECONDS, "path": TOKEN_FILE}
    trust = {"path": TRUST_FILE, "fieldRef": {"fieldPath": f"metadata.annotations['{names.ANNOTATION_TRUST}']"}}
    return [{"serviceAccountToken": token}, {"downwardAPI": {"items": [trust]}}]


def _of_job(serve: Serve) -> list[Manifest]:
    """Single keys of Secrets: whatever else is in one stays out of the pod."""
    return [
        {"secret": {"name": name, "items": [{"key": key, "path": path} for key, path in files.items()]}}
        for name, files in _secrets(serve)
    ]


def _stores(spec: InferenceJobSpec, source: ModelSource, settings: Settings) -> Iterator[tuple[str, Storage]]:
    """Each location that a worker asks somebody's store for, with how."""
    if source.storage is not None:
        yield source.uri, source.storage
    if spec.input is not None and spec.input.uri is not None and (of_input := input_storage(spec, settings)) is not None:
        yield spec.input.uri, of_input
    if spec.output is not None and (of_output := output_storage(spec, settings)) is not None:
        yield spec.output.uri, of_output


def _of_stores(stores: Sequence[tuple[str, Storage]]) -> Iterator[Manifest]:
    """The keys of the Secrets that stores are asked with, and the token by which roles are assumed."""
    for uri, storage in stores:
        if storage.secret:
            items = [{"key": key, "path": f"{storage.folder}/{key}"} for key in keys_of(parse_uri(uri))]
            # Optional: which keys there must be depends on each other, and the worker says best what it lacks.
            yield {"secret": {"name": storage.secret, "items": items, "optional": True}}
    if any(storage.aws_role for _, storage in stores):
        token = {"audience": ROLE_TOKEN_AUDIENCE, "expirationSeconds": _TOKEN_SECONDS, "path": ROLE_TOKEN_FILE}
        yield {"serviceAccountToken": token}


def _secrets(serve: Serve) -> Iterator[tuple[str, dict[str, str]]]:
    """Each Secret of a job, with the files that its keys become."""
    if serve.tls is not None and serve.tls.secret_name is not None:
        yield serve.tls.secret_name, {"tls.crt": CERTIFICATE_FILE, "tls.key": KEY_FILE}
    if serve.authentication is not None and serve.authentication.client_certificates is not None:
        yield serve.authentication.client_certificates.ca_secret_name, {"ca.crt": CLIENT_CA_FILE}
    if serve.authentication is not None and serve.authentication.jwt is not None:
        yield serve.authentication.jwt.jwks_secret_name, {"jwks.json": JWKS_FILE}
