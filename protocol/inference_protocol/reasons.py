"""Why a worker could not do its work: a closed list that the operator shows to users as condition reasons."""

from enum import StrEnum


class WorkerReason(StrEnum):
    """One word for each fault that a worker can name. The message beside it says what to do."""

    MODEL_NOT_FOUND = "ModelNotFound"
    MODEL_DIGEST_MISMATCH = "ModelDigestMismatch"
    MODEL_CORRUPT = "ModelCorrupt"
    MODEL_UNREACHABLE = "ModelUnreachable"
    QUANTIZATION_REFUSED = "QuantizationRefused"
    MODEL_REFUSED = "ModelRefused"
    SIGNATURE_MISMATCH = "SignatureMismatch"
    BACKEND_MISSING = "BackendMissing"
    BACKEND_UNREACHABLE = "BackendUnreachable"
    REPOSITORY_UNWRITABLE = "RepositoryUnwritable"
    PROVIDER_UNAVAILABLE = "ProviderUnavailable"
    INPUT_NOT_FOUND = "InputNotFound"
    INPUT_UNREACHABLE = "InputUnreachable"
    INPUT_INVALID = "InputInvalid"
    OUTPUT_UNWRITABLE = "OutputUnwritable"
    OUTPUT_CONFLICT = "OutputConflict"
    URI_FORBIDDEN = "UriForbidden"
    OUT_OF_MEMORY = "OutOfMemory"
    TERMINATED = "Terminated"
    INTERNAL = "WorkerFailed"


# A second attempt meets the same bytes and the same rules, so it would only burn the device again.
PERMANENT: frozenset[WorkerReason] = frozenset(
    {
        WorkerReason.MODEL_NOT_FOUND,
        WorkerReason.MODEL_DIGEST_MISMATCH,
        WorkerReason.MODEL_CORRUPT,
        WorkerReason.MODEL_REFUSED,
        WorkerReason.SIGNATURE_MISMATCH,
        WorkerReason.BACKEND_MISSING,
        WorkerReason.QUANTIZATION_REFUSED,
        WorkerReason.PROVIDER_UNAVAILABLE,
        WorkerReason.INPUT_NOT_FOUND,
        WorkerReason.INPUT_INVALID,
        WorkerReason.OUTPUT_CONFLICT,
        WorkerReason.URI_FORBIDDEN,
    }
)
