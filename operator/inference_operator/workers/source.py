"""What a job's workers read and write beside volumes: the model that they load, and the stores of inputs and outputs."""

from pathlib import PurePosixPath
from urllib.parse import urlsplit

import msgspec

from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.job_status import ResolvedModel
from inference_operator.api.model import (
    InferenceModelSpec,
    InferenceModelStatus,
    ModelVersion,
    QuantizationMethod,
    QuantizationSpec,
    SignatureSpec,
    TensorSpec,
)
from inference_operator.api.storage import Storage as StorageSpec
from inference_operator.settings import Fetching, Settings
from inference_operator.signatures import trust_for
from inference_operator.state.objects import Job, Key, Model
from inference_protocol.messages import ModelSignature, ModelSource, Quantization, Storage, TensorSignature
from inference_protocol.storage import INPUT_STORAGE_FOLDER, OUTPUT_STORAGE_FOLDER, STORAGE_FOLDER
from inference_protocol.uris import HubUri, S3Uri, is_uri, parse_uri


def locations(spec: InferenceJobSpec) -> tuple[str, ...]:
    """Every URI that a job names."""
    model = (spec.model,) if is_uri(spec.model) else ()
    given = (spec.input.uri,) if spec.input is not None and spec.input.uri is not None else ()
    return (*model, *given, *((spec.output.uri,) if spec.output is not None else ()))


def pinned_version(job: Job, spec: InferenceJobSpec, model: Model | None) -> ModelVersion | None:
    """Return the version of the InferenceModel that a job asks for; None for a model by URI and for a version that is not there."""
    if model is None or model.spec is None:
        return None
    wanted = spec.model_version or begun_with(job, spec) or default_version(model.spec)
    return next((v for v in model.spec.versions if v.name == wanted), None)


def default_version(model: InferenceModelSpec) -> str:
    """Return the name of the version that jobs take which name none."""
    return model.default_version or model.versions[-1].name


def begun_with(job: Job, spec: InferenceJobSpec) -> str | None:
    """Return the version that a batch began with, and stays with: neither a new default nor its removal may throw work away."""
    ran = job.status.model
    if spec.input is None or ran is None or not job.status.attempts or ran.name != spec.model:
        return None
    return ran.version


def remembered(name: str, version: ModelVersion, model: Model) -> ResolvedModel:
    """Return what a job remembers of the InferenceModel that its workers are made of."""
    if model.spec is None:
        return ResolvedModel(name=name, version=version)
    return ResolvedModel(name=name, version=version, resources=model.spec.resources, template=model.spec.template)


def stand_in(job: Job, spec: InferenceJobSpec) -> Model | None:
    """Return what stands in for a deleted InferenceModel: what the job remembers of it; None where it asks for something else.

    Nothing may be written to it: it has no uid.
    """
    known = job.status.resolved_model
    if known is None or known.name != spec.model or spec.model_version not in (None, known.version.name):
        return None
    found = InferenceModelSpec(
        versions=[known.version], default_version=known.version.name, resources=known.resources, template=known.template
    )
    return Model(Key(job.key.namespace, known.name), "", 0, "", found, InferenceModelStatus())


def model_source(spec: InferenceJobSpec, version: ModelVersion | None) -> ModelSource:
    """Return the model file that a job runs: that of a version, or one by URI."""
    if version is None:
        name = PurePosixPath(urlsplit(spec.model).path).stem or "model"
        return ModelSource(name=name[:253], version="1", uri=spec.model, digest=spec.model_digest)
    return ModelSource(
        name=spec.model,
        version=version.name,
        uri=version.uri,
        digest=spec.model_digest or version.digest,
        format=_said(version.format),
        quantization=_quantization(version.quantization),
        signature=_signature(version.signature),
        signature_uri=version.signature_uri,
        storage=_storage(version.storage),
    )


def trusted_source(job: Job, spec: InferenceJobSpec, version: ModelVersion | None, settings: Settings) -> ModelSource:
    """Return the model file that a job runs, with who has to have signed it, and where its store is."""
    source = model_source(spec, version)
    source = msgspec.structs.replace(source, storage=_where(source.uri, source.storage, settings.fetch))
    trust = trust_for(job.key.namespace, source.name, settings.model_signatures)
    return msgspec.structs.replace(source, trust=trust) if trust is not None else source


def input_storage(spec: InferenceJobSpec, settings: Settings) -> Storage | None:
    """Return how the store of a batch's input is asked; None for an input that is in none, and where nothing is said of it."""
    if spec.input is None or spec.input.uri is None:
        return None
    return _where(spec.input.uri, _storage(spec.input.storage, INPUT_STORAGE_FOLDER), settings.fetch)


def output_storage(spec: InferenceJobSpec, settings: Settings) -> Storage | None:
    """Return how the store of a batch's output is asked, as input_storage does."""
    if spec.output is None:
        return None
    return _where(spec.output.uri, _storage(spec.output.storage, OUTPUT_STORAGE_FOLDER), settings.fetch)


def asks_as_somebody(spec: InferenceJobSpec) -> bool:
    """Return whether a batch's input or output is asked for by credentials: none but its own worker is shown them."""
    return any(part is not None and part.storage is not None for part in (spec.input, spec.output))


def _storage(given: StorageSpec | None, folder: str = STORAGE_FOLDER) -> Storage | None:
    if given is None:
        return None
    secret = given.secret_ref.name if given.secret_ref is not None else ""
    return Storage(secret=secret, aws_role=given.aws_role_arn or "", folder=folder)


def _where(uri: str, storage: Storage | None, settings: Fetching) -> Storage | None:
    """Return what is known of a store with what the settings say of it, and of no other: a change rolls out only who asks it."""
    own = storage or Storage()
    match parse_uri(uri):
        case S3Uri():
            told = msgspec.structs.replace(own, s3_endpoint=settings.s3_endpoint, s3_region=settings.s3_region)
        case HubUri():
            told = msgspec.structs.replace(own, hub_endpoint=settings.hub_endpoint)
        case _:
            return storage
    return told if told != Storage() else storage


def _said(text: str) -> str:
    """Return an equal string that is no other's object.

    msgspec leaves a field out when its value *is* the default's object. So a version whose format a manifest names would hash
    otherwise than one whose format is filled in when it is read, and its workers would be replaced for that.
    """
    return text[:1] + text[1:]


def _signature(given: SignatureSpec | None) -> ModelSignature | None:
    if given is None:
        return None
    return ModelSignature(inputs=_tensors(given.inputs), outputs=_tensors(given.outputs))


def _tensors(given: list[TensorSpec]) -> tuple[TensorSignature, ...]:
    return tuple(TensorSignature(t.name, t.datatype.value, tuple(t.shape)) for t in given)


def _quantization(wanted: QuantizationSpec | None) -> Quantization | None:
    if wanted is None:
        return None
    return Quantization(
        method="static" if wanted.method is QuantizationMethod.STATIC else "dynamic",
        evaluation_uri=wanted.evaluation,
        calibration_uri=wanted.calibration,
        labels_uri=wanted.labels,
        max_drop=wanted.max_drop,
        min_agreement=wanted.min_agreement,
    )
