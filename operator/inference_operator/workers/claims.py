"""The PersistentVolumeClaims that a worker mounts."""

from inference_operator.api.job import InferenceJobSpec
from inference_protocol.messages import (
    ModelSource,
)
from inference_protocol.uris import PvcUri, is_uri, parse_uri


def claims(spec: InferenceJobSpec, source: ModelSource) -> dict[str, bool]:
    """The PersistentVolumeClaims that a worker mounts, and whether it writes there."""
    found: dict[str, bool] = {}
    given = spec.input.uri if spec.input is not None else None
    rows = source.quantization
    read = (rows.evaluation_uri, rows.calibration_uri, rows.labels_uri) if rows is not None else ()
    for text, writes in (
        *((uri, False) for uri in (source.uri, source.signature_uri, given, *read)),
        (spec.output.uri if spec.output else None, True),
    ):
        if text is None or not is_uri(text):
            continue
        uri = parse_uri(text)
        if isinstance(uri, PvcUri):
            found[uri.claim] = found.get(uri.claim, False) or writes
    if spec.serve is not None and spec.serve.slack is not None:
        found |= dict.fromkeys(spec.serve.slack.claims, True)
    return found
