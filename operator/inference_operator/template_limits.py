"""What jobs may add to worker pods: names that every job may use, names that none may, and what an administrator allows beside.

A list of what is allowed, because nobody can list all that some library in a worker obeys.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

# Obeyed by the loader, the C library, the interpreter or a runtime, before or beside the worker's own code: they name code to run,
# or change what is computed. No setting allows them. The API server takes the same pattern as RE2.
RESERVED_ENVIRONMENT = (
    "^(LD_|DYLD_|GLIBC_|MALLOC_|PYTHON|INFERENCE_|ORT_|CUDA_|NVIDIA_|TORCH_|PYTORCH_|TRITON|OMP_TOOL|OPENSSL_|BASH_|"
    "(PATH|HOME|TMPDIR|SHELL|BROWSER|ENV|IFS|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES|RESOLV_HOST_CONF)$)"
)
# What the worker's libraries read and what only counts, places or names; and a prefix that nothing in the image reads.
USUAL_ENVIRONMENT = (
    "TZ",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_SAMPLER_ARG",
    "APP_*",
)
# Keys of labels and annotations that no setting allows: the operator's own, and those that undo the pod's confinement.
RESERVED_KEYS = r"^(inference\.myorg/|[^/]*security[^/]*kubernetes\.io/)"

_ANY = "*"
_ENVIRONMENT_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")
_KEY_PATTERN = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_./]*\*?")


class TemplateLimits(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What an administrator lets jobs set in `spec.template` and `spec.tolerations`. A name that ends in * stands for a prefix."""

    # Names of variables, beside those that every job may set.
    environment: tuple[str, ...] = ()
    # Keys of labels: a Service, NetworkPolicy or PodMonitor that selects on one takes in the pods of whoever may set it.
    labels: tuple[str, ...] = ()
    # Keys of annotations: meshes, networks and runtimes obey them.
    annotations: tuple[str, ...] = ()
    priority_classes: tuple[str, ...] = ()
    runtime_classes: tuple[str, ...] = ("nvidia",)
    # Keys of taints, beside those that the accelerator classes tolerate.
    tolerations: tuple[str, ...] = ()


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of these, or has the prefix that one of them stands for."""
    return any(name.startswith(p.removesuffix(_ANY)) if p.endswith(_ANY) else name == p for p in patterns)


def is_environment_allowed(name: str, limits: TemplateLimits) -> bool:
    """Whether a job may set this variable."""
    return re.match(RESERVED_ENVIRONMENT, name) is None and matches(name, (*USUAL_ENVIRONMENT, *limits.environment))


def is_key_allowed(key: str, patterns: Iterable[str]) -> bool:
    """Whether a job may set this key of a label or an annotation."""
    return re.match(RESERVED_KEYS, key) is None and matches(key, patterns)


def limits_fault(limits: TemplateLimits) -> str | None:
    """What is wrong with the first entry that can't be used, with its place and the cure; None where all can."""
    return next(_faults(limits), None)


def _faults(limits: TemplateLimits) -> Iterator[str]:
    for part, given, form, reserved in (
        ("environment", limits.environment, _ENVIRONMENT_PATTERN, RESERVED_ENVIRONMENT),
        ("labels", limits.labels, _KEY_PATTERN, RESERVED_KEYS),
        ("annotations", limits.annotations, _KEY_PATTERN, RESERVED_KEYS),
    ):
        for entry in given:
            if form.fullmatch(entry) is None:
                yield f"podTemplate.{part}: {entry!r} is neither a name nor a prefix that ends in {_ANY}"
            elif re.match(reserved, entry) is not None:
                yield f"podTemplate.{part}: {entry} is reserved, because it could undo what confines a worker; leave it out"
    if any(not key or key == _ANY for key in limits.tolerations):
        yield "podTemplate.tolerations: name each taint by its key; none stands for all"
