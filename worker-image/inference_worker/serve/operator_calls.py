"""What the operator asks of a worker over HTTP: telemetry, and tasks of a warm one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

from inference_protocol.messages import TASK_STOP_PATH, TASK_WAIT_PATH, TASKS_PATH, TELEMETRY_PATH, encode
from inference_worker.errors import RequestError
from inference_worker.serve import orders
from inference_worker.serve.background import Background
from inference_worker.serve.http_messages import Request, Response, error_body, refusal
from inference_worker.worker_state import WorkerState


class OperatorCalls:
    """The calls by path: `get` are answered from what is known, `post` by whoever takes the request."""

    def __init__(self, state: WorkerState, background: Background) -> None:
        self._state = state
        self.get: dict[str, Callable[[], Response]] = {TELEMETRY_PATH: lambda: Response(HTTPStatus.OK, encode(state.telemetry()))}
        self.post: dict[str, Callable[[Request], None]] = {
            TASKS_PATH: lambda request: _told(request, lambda: orders.order(state, request)),
            TASK_STOP_PATH: lambda request: _told(request, lambda: orders.stop(state, request)),
            TASK_WAIT_PATH: lambda request: background.spawn(self._wait(request)),
        }

    def handle(self, request: Request) -> None:
        """Answer one request on a port that has nothing else."""
        if request.method == "GET" and (get := self.get.get(request.path)) is not None:
            request.reply(get())
        elif request.method == "POST" and (post := self.post.get(request.path)) is not None:
            post(request)
        else:
            request.reply(Response(HTTPStatus.NOT_FOUND, error_body("this port is the operator's: telemetry and tasks")))

    async def _wait(self, request: Request) -> None:
        with refusing(request):
            request.reply(await orders.wait(self._state, request))


def _told(request: Request, work: Callable[[], Response]) -> None:
    with refusing(request):
        request.reply(work())


@contextmanager
def refusing(request: Request) -> Iterator[None]:
    """Answer with the refusal that comes out of it."""
    try:
        yield
    except RequestError as error:
        request.reply(refusal(error))
