"""What jobs may add to worker pods: names that every job may use, names that none may, and what an administrator allows beside.

A list of what is allowed, because nobody can list all that some library in a worker obeys.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

# Obeyed by the loader, the C library, the interpreter or a runtime, before or beside the worker's own code: they name code to run,
# or change what is computed. No setting allows them. The API server takes the same pattern as RE2.
_RESERVED_PREFIXES = "LD_|DYLD_|GLIBC_|MALLOC_|PYTHON|INFERENCE_|ORT_|CUDA_|NVIDIA_|TORCH_|PYTORCH_|TRITON|OMP_TOOL|OPENSSL_|BASH_"
_RESERVED_NAMES = "PATH|HOME|TMPDIR|SHELL|BROWSER|ENV|IFS|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES|RESOLV_HOST_CONF"
RESERVED_ENVIRONMENT = f"^({_RESERVED_PREFIXES}|({_RESERVED_NAMES})$)"
_RESERVED = (*_RESERVED_PREFIXES.split("|"), *_RESERVED_NAMES.split("|"))
# Below it workers mount what a template adds, and nothing else.
TEMPLATE_ROOT = "/mnt/extra"
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
_IDS_PATTERN = re.compile(r"[0-9]{1,10}(-[0-9]{1,10})?")
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
    # Secrets of a job's namespace that its pods may show, in variables and files: whoever may create jobs there can read them then.
    secrets: tuple[str, ...] = ()
    # Images of init containers and sidecars, which run code of their own beside the worker.
    images: tuple[str, ...] = ()
    # ServiceAccounts of worker pods, whose registries and cloud identities they have then.
    service_accounts: tuple[str, ...] = ()
    # Users and groups that pods may run as: numbers, and ranges such as 2000-2999.
    ids: tuple[int | str, ...] = ()
    # Names of hosts that pods may be told the address of.
    host_aliases: tuple[str, ...] = ()


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of these, or has the prefix that one of them stands for."""
    return any(name.startswith(p.removesuffix(_ANY)) if p.endswith(_ANY) else name == p for p in patterns)


def is_environment_allowed(name: str, limits: TemplateLimits) -> bool:
    """Whether a job may set this variable."""
    return re.match(RESERVED_ENVIRONMENT, name) is None and matches(name, (*USUAL_ENVIRONMENT, *limits.environment))


def is_prefix_allowed(prefix: str, limits: TemplateLimits) -> bool:
    """Whether a job may set every variable that begins so: whatever an object holds, none of them is reserved."""
    # As the chart's policy has it, which knows the reserved names as beginnings only.
    reserved = any(prefix.startswith(one) or one.startswith(prefix) for one in _RESERVED)
    stems = (entry.removesuffix(_ANY) for entry in (*USUAL_ENVIRONMENT, *limits.environment) if entry.endswith(_ANY))
    return not reserved and any(prefix.startswith(stem) for stem in stems)


def is_id_allowed(number: int, limits: TemplateLimits) -> bool:
    """Whether pods may run as this user or group."""
    return any(number in _range(entry) for entry in limits.ids)


def _range(entry: int | str) -> range:
    first, _, last = str(entry).partition("-")
    return range(int(first), int(last or first) + 1)


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
    for part, given in (("images", limits.images), ("secrets", limits.secrets), ("serviceAccounts", limits.service_accounts)):
        if any(not entry or entry == _ANY for entry in given):
            yield f"podTemplate.{part}: name each, or a prefix that ends in {_ANY}; none stands for all"
    for ids in limits.ids:
        if _IDS_PATTERN.fullmatch(str(ids)) is None or not _range(ids) or 0 in _range(ids):
            yield f"podTemplate.ids: {ids!r} is neither a number above 0 nor a range such as 2000-2999"
    if any(not key or key == _ANY for key in limits.tolerations):
        yield "podTemplate.tolerations: name each taint by its key; none stands for all"
