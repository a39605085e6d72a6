"""A typed client for InferenceJobs and InferenceModels: `Client` for ordinary code, `inference_client.aio` for event loops.

Both carry out the same steps (`steps.py`), so that they can't differ. The kubectl plug-in is built on it.
"""

from inference_client.api import InferenceJob, InferenceJobSpec, InferenceModel, InferenceModelSpec, Input, Metadata, Output, Serve
from inference_client.client import Client
from inference_client.downloads import Download, Progress
from inference_client.errors import (
    AlreadyExistsError,
    ClientError,
    ConfigurationError,
    ForbiddenError,
    InvalidError,
    JobFailedError,
    NotFoundError,
    UnavailableError,
    UnreadableError,
    WaitTimeoutError,
)
from inference_client.job_state import Goal
from inference_client.result import Result
from inference_client.steps import Listed

__version__ = "0.1.0"

__all__ = [
    "AlreadyExistsError",
    "Client",
    "ClientError",
    "ConfigurationError",
    "Download",
    "ForbiddenError",
    "Goal",
    "InferenceJob",
    "InferenceJobSpec",
    "InferenceModel",
    "InferenceModelSpec",
    "Input",
    "InvalidError",
    "JobFailedError",
    "Listed",
    "Metadata",
    "NotFoundError",
    "Output",
    "Progress",
    "Result",
    "Serve",
    "UnavailableError",
    "UnreadableError",
    "WaitTimeoutError",
]
