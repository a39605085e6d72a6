"""A worker's reasons: which of them another attempt would meet again, and that they travel as plain words."""

import msgspec
import pytest

from inference_protocol.reasons import PERMANENT, WorkerReason


def test_what_the_same_bytes_and_rules_would_meet_again_is_permanent() -> None:
    assert {
        "ModelNotFound",
        "ModelDigestMismatch",
        "ModelUnsigned",
        "ModelSignatureRefused",
        "ModelCorrupt",
        "ModelTooLarge",
        "ModelDataMissing",
        "ModelFormatUnsupported",
        "ModelInvalid",
        "ModelTooNew",
        "ModelOperatorUnsupported",
        "ModelTypeUnsupported",
        "ModelLocaleMissing",
        "ModelRefused",
        "SignatureMismatch",
        "BackendMissing",
        "QuantizationRefused",
        "ProviderUnavailable",
        "InputNotFound",
        "InputChanged",
        "InputInvalid",
        "TooManyItems",
        "OutputConflict",
        "OutputStoreUnsafe",
        "UriForbidden",
    } == PERMANENT


@pytest.mark.parametrize("reason", WorkerReason)
def test_a_reason_travels_as_its_word(reason: WorkerReason) -> None:
    data = msgspec.json.encode(reason)

    assert data == f'"{reason.value}"'.encode()
    assert msgspec.json.decode(data, type=WorkerReason) is reason
