"""Why the cache doesn't take a model."""

from http import HTTPStatus


class NotTakenError(Exception):
    """A model is not taken; `status` is what whoever sent it is told."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
