"""Why a worker could not do its work: a closed list that the operator shows to users as condition reasons.

The module is longer than others: whoever looks for a reason finds all of them here.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


@dataclass(frozen=True, slots=True)
class ReasonText:
    """What a reason means and how to cure it, one sentence each. `final`: no further attempt is made without a change."""

    meaning: str
    cure: str
    final: bool = False


UNDESCRIBED = ReasonText("", "")


class WorkerReason(StrEnum):
    """One word for each fault that a worker can name, with its text. The message beside it says where, and how to cure it."""

    text: ReasonText

    # Without a default a lookup by the word alone, WorkerReason("OutOfMemory"), would not pass the type check.
    def __new__(cls, word: str, text: ReasonText = UNDESCRIBED) -> Self:
        """Return the member: a plain string that carries its text."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.text = text
        return member

    # What is final meets the same bytes and the same rules at the next attempt, which would only burn the device again.
    MODEL_NOT_FOUND = (
        "ModelNotFound",
        ReasonText(
            "The model's file doesn't exist, or can't be read.",
            "Correct the model's URI, or put a file there that the worker's user (65532 by default) may read.",
            final=True,
        ),
    )
    MODEL_TOO_LARGE = (
        "ModelTooLarge",
        ReasonText(
            "The model's files have more bytes than the limit, or its own file more than an ONNX file may have (2 GiB).",
            "Save the weights beside the file (external data), export a smaller model, or quantise it.",
            final=True,
        ),
    )
    MODEL_DATA_MISSING = (
        "ModelDataMissing",
        ReasonText(
            "The model keeps weights in a second file, which isn't beside it, or is too short.",
            "Put all files of the model into one directory, under the names that the export gave them.",
            final=True,
        ),
    )
    MODEL_DIGEST_MISMATCH = (
        "ModelDigestMismatch",
        ReasonText(
            "The model's file has another digest than the one that the job or the InferenceModel pins.",
            "Restore the file, or update the digest if the change is meant.",
            final=True,
        ),
    )
    MODEL_UNSIGNED = (
        "ModelUnsigned",
        ReasonText(
            "The administrator requires a signature of the model, and there is none where it should be.",
            "Sign the model's directory and put model.sig beside the file, or name its place in signatureUri.",
            final=True,
        ),
    )
    MODEL_SIGNATURE_REFUSED = (
        "ModelSignatureRefused",
        ReasonText(
            "The model's signature isn't by a trusted signer, or isn't of these files, this name and this version.",
            "Have a trusted signer sign these files as NAME@VERSION, or restore the files that were signed.",
            final=True,
        ),
    )
    MODEL_CORRUPT = (
        "ModelCorrupt",
        ReasonText(
            "The file is damaged, or was not written whole.",
            "Upload the file again, or export the model again, and update its digest.",
            final=True,
        ),
    )
    MODEL_FORMAT_UNSUPPORTED = (
        "ModelFormatUnsupported",
        ReasonText(
            "The file is of another format than the back end reads.",
            "Export the model to the format that the message names, and update its digest.",
            final=True,
        ),
    )
    MODEL_INVALID = (
        "ModelInvalid",
        ReasonText(
            "The file is whole, but its graph breaks a rule of its format.",
            "Correct the export at the node that the message names; onnx.checker finds such faults early.",
            final=True,
        ),
    )
    MODEL_TOO_NEW = (
        "ModelTooNew",
        ReasonText(
            "The model was exported for a newer version of the format than the worker's runtime reads.",
            "Export it with the opset or IR version that the message names, or use a newer worker image.",
            final=True,
        ),
    )
    MODEL_OPERATOR_UNSUPPORTED = (
        "ModelOperatorUnsupported",
        ReasonText(
            "The model has an operator that the worker's runtime can't compute.",
            "Export the model without the operator that the message names, or with other types.",
            final=True,
        ),
    )
    MODEL_TYPE_UNSUPPORTED = (
        "ModelTypeUnsupported",
        ReasonText(
            "The model takes or gives a value that is no tensor of a type which the protocol carries.",
            "Export the model with plain tensors, as the message says.",
            final=True,
        ),
    )
    MODEL_LOCALE_MISSING = (
        "ModelLocaleMissing",
        ReasonText(
            "The model changes the case of texts by a locale that the worker's image doesn't have.",
            "Export the model with the locale en_US or C, or use a worker image that has its locale.",
            final=True,
        ),
    )
    MODEL_UNREACHABLE = (
        "ModelUnreachable",
        ReasonText(
            "The server that holds the model doesn't answer, answers with an error, or breaks the connection off.",
            "Check the URL and its server, and let the worker's pod reach it.",
        ),
    )
    MODEL_ACCESS_DENIED = (
        "ModelAccessDenied",
        ReasonText(
            "The store of the model refuses who asks, or the Secret of storage.secretRef doesn't have what is needed.",
            "Correct the Secret's keys, have admissionPolicy.secrets list it, and let its identity read the file.",
        ),
    )
    MODEL_CHANGED = (
        "ModelChanged",
        ReasonText("The model's file was replaced while it was fetched.", "Give each version of the file a name of its own."),
    )
    QUANTIZATION_REFUSED = (
        "QuantizationRefused",
        ReasonText(
            "The worker can't make the INT8 variant, or the variant answers too differently from the original.",
            "Change the version's quantization as the message says, or remove it.",
            final=True,
        ),
    )
    MODEL_REFUSED = (
        "ModelRefused",
        ReasonText("Triton can't run the model.", "Change the model as the message says, or set backend to onnx.", final=True),
    )
    MODEL_HUNG = (
        "ModelHung",
        ReasonText(
            "A run of the model doesn't end: it has taken far longer than such runs take, so the worker was given up.",
            "Look for a loop in the model that never ends, and at the device and its driver.",
        ),
    )
    SIGNATURE_MISMATCH = (
        "SignatureMismatch",
        ReasonText(
            "The version of a TorchScript model has no signature, or one that the model doesn't match.",
            "Correct the version's signature in the InferenceModel.",
            final=True,
        ),
    )
    BACKEND_MISSING = (
        "BackendMissing",
        ReasonText(
            "The worker's pod doesn't have the back end that the job needs.",
            "Correct the back end's image in the chart, and run operator and worker of the same release.",
            final=True,
        ),
    )
    BACKEND_UNREACHABLE = (
        "BackendUnreachable",
        ReasonText(
            "Triton doesn't start, doesn't load the model in time, or has stopped answering.",
            "Read the log of the pod's container tritonserver, and raise resources.limits.memory if it was killed.",
        ),
    )
    REPOSITORY_UNWRITABLE = (
        "RepositoryUnwritable",
        ReasonText(
            "The worker can't write the model to the volume that it shares with Triton.",
            "Free ephemeral storage on the node, or raise its limit: the volume holds a second copy of the model.",
        ),
    )
    PROVIDER_UNAVAILABLE = (
        "ProviderUnavailable",
        ReasonText(
            "The worker can't use any execution provider that its accelerator class lists.",
            "Set accelerators.NAME.image to one that has a provider, check the driver on the node, and create the batch again.",
            final=True,
        ),
    )
    INPUT_NOT_FOUND = (
        "InputNotFound",
        ReasonText(
            "The job's input, or a file of rows for quantization, doesn't exist, is too large, or can't be read.",
            "Correct the URI, or put a file there that the worker's user (65532 by default) may read.",
            final=True,
        ),
    )
    INPUT_UNREACHABLE = (
        "InputUnreachable",
        ReasonText(
            "The server that holds the input doesn't answer, answers with an error, or breaks the connection off.",
            "Check the URL and its server, and let the worker's pod reach it.",
        ),
    )
    INPUT_ACCESS_DENIED = (
        "InputAccessDenied",
        ReasonText(
            "The store of the input refuses who asks, or the Secret of input.storage doesn't have what is needed.",
            "Correct the Secret's keys, have admissionPolicy.secrets list it, and let its identity read and list the input.",
        ),
    )
    INPUT_INVALID = (
        "InputInvalid",
        ReasonText(
            "The input doesn't match the model or its digest, or the answers are too large for the status.",
            "Correct the input as the message says, or set output.uri for large answers.",
            final=True,
        ),
    )
    INPUT_CHANGED = (
        "InputChanged",
        ReasonText(
            "The input was rewritten after an attempt had committed answers to it.",
            "Restore the input, set another output.uri, or delete the job and create it anew.",
            final=True,
        ),
    )
    TOO_MANY_ITEMS = (
        "TooManyItems",
        ReasonText(
            "The deadline is firm, and the input holds more items than can be answered by then.",
            "Set a later deadline, split the input, or set deadlinePolicy to Soft.",
            final=True,
        ),
    )
    OUTPUT_UNWRITABLE = (
        "OutputUnwritable",
        ReasonText(
            "The worker can't write the output: no space is left, access is denied, or its files were changed.",
            "Enlarge or empty the volume, and let the worker's user (65532 by default) write to it.",
        ),
    )
    OUTPUT_UNREACHABLE = (
        "OutputUnreachable",
        ReasonText(
            "The store of the output doesn't answer, or asked the worker to slow down for too long.",
            "Check the store and the network; the next attempt goes on where this one was.",
        ),
    )
    OUTPUT_ACCESS_DENIED = (
        "OutputAccessDenied",
        ReasonText(
            "The store of the output refuses who asks, or the Secret of output.storage doesn't have what is needed.",
            "Correct the Secret's keys, have admissionPolicy.secrets list it, and let its identity read, write, delete and list.",
        ),
    )
    OUTPUT_STORE_UNSAFE = (
        "OutputStoreUnsafe",
        ReasonText(
            "The store of the output ignores the conditions of writes, so two workers could overwrite each other's answers.",
            "Use a store with conditional writes, as the page on buckets lists them, or a volume.",
            final=True,
        ),
    )
    OUTPUT_CLAIMED = (
        "OutputClaimed",
        ReasonText(
            "Another worker has claimed the output since, so this one has stopped; that is no failed attempt.",
            "Wait: the work goes on there, or in the next attempt; if attempts fail so, do what the message says.",
        ),
    )
    OUTPUT_CONFLICT = (
        "OutputConflict",
        ReasonText(
            "The output location is the input, or holds somebody else's files or finished answers.",
            "Set another output.uri, or empty the location.",
            final=True,
        ),
    )
    URI_FORBIDDEN = (
        "UriForbidden",
        ReasonText(
            "A URI, a link or a redirect leads where workers may not go.",
            "Use a path that stays in its claim, or an address that workers may fetch from.",
            final=True,
        ),
    )
    OUT_OF_MEMORY = (
        "OutOfMemory",
        ReasonText(
            "The worker, or its device, doesn't have enough memory for the model and one batch.",
            "Lower batchSize, raise resources.limits.memory (host) or the class's deviceMemory (device), or use a larger class.",
        ),
    )
    TERMINATED = (
        "Terminated",
        ReasonText(
            "The worker was told to stop before the work was done, or worked on an older spec.",
            "Wait for the next attempt: this one does not count as failed.",
        ),
    )
    INTERNAL = (
        "WorkerFailed",
        ReasonText(
            "The worker failed in a way that it has no other reason for.",
            "Read the message, and the worker's log: kubectl logs -l inference.myorg/job=NAME.",
        ),
    )


PERMANENT: frozenset[WorkerReason] = frozenset(reason for reason in WorkerReason if reason.text.final)
