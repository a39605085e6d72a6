"""A learned policy in an ONNX file, as `bench/learned` writes them. ONNX Runtime and numpy are no part of the operator's image.

Nothing of the operator imports this unless a policy is set.
"""

from pathlib import Path
from typing import Any

import numpy as np

from inference_operator.errors import PolicyError
from inference_operator.shadow.features import NAMES, Table


class Policy:
    """A file that was loaded, and scores as it promises. `threshold` is the least score that is not held back."""

    def __init__(self, session: Any, threshold: float) -> None:
        self._session = session
        self._input = session.get_inputs()[0].name
        self.threshold = threshold

    def scores(self, rows: Table) -> list[float]:
        """For each row the probability, 0..1, that the job will be on time. Raises PolicyError."""
        try:
            (found,) = self._session.run(None, {self._input: rows})
        except Exception as error:
            # ONNX Runtime's own exceptions have no common root.
            raise PolicyError(str(error)) from error
        scores = np.asarray(found, dtype=float)
        if scores.size != len(rows) or not ((scores >= 0) & (scores <= 1)).all():
            raise PolicyError(f"{len(rows)} rows were answered by {scores.shape} of which some are no probabilities")
        return [float(score) for score in scores.reshape(-1)]


def load_policy(path: Path) -> Policy:
    """Load a file and try it once. Raises PolicyError for one that is not there, or was not trained on what it would be shown."""
    try:
        import onnxruntime
    except ImportError as error:
        raise PolicyError(f"this image has no ONNX Runtime ({error})") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}") from error
    except Exception as error:
        raise PolicyError(f"{path}: {error}") from error
    told: dict[str, str] = session.get_modelmeta().custom_metadata_map
    if told.get("features") != "\n".join(NAMES):
        raise PolicyError(f"{path}: it was not trained on what this version would show it")
    try:
        threshold = float(told.get("threshold", ""))
    except ValueError as error:
        raise PolicyError(f"{path}: it names no threshold") from error
    policy = Policy(session, threshold)
    policy.scores(np.ones((2, len(NAMES))))
    return policy
