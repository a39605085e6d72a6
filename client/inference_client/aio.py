"""The client for an event loop: the same steps as `Client`, awaited."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Generic, Self

from inference_client import calls, downloads, steps
from inference_client.aio_transport import AsyncTransport
from inference_client.api import InferenceJob, InferenceModel
from inference_client.calls import Call, Exec, Pause, Raw, Resource, Work
from inference_client.downloads import Download, Progress, Wish
from inference_client.job_state import Goal
from inference_client.result import Result, result_of
from inference_client.steps import AnySteps, Listed, Object, T
from inference_client.volume_pod import DEFAULT_IMAGE


class AsyncClient:
    """Jobs and models of one cluster; `namespace` is meant where a method is given none."""

    def __init__(self, transport: AsyncTransport, namespace: str | None = None) -> None:
        self.transport = transport
        self.namespace = namespace or transport.namespace
        self.jobs = AsyncJobs(self, calls.JOBS, InferenceJob)
        self.models = AsyncObjects(self, calls.MODELS, InferenceModel)

    @classmethod
    async def from_kubeconfig(
        cls, kubeconfig: str | None = None, *, context: str | None = None, namespace: str | None = None
    ) -> Self:
        """A client by kubeconfig and context, as kubectl chooses them. Raises ConfigurationError."""
        return cls(await AsyncTransport.from_kubeconfig(kubeconfig, context), namespace)

    async def run(self, made: AnySteps[T]) -> T:
        """Carry steps out. Raises ClientError."""
        try:
            call = next(made)
            while True:
                try:
                    answer = await self._carry_out(call)
                # Also a cancellation: steps may have something to clean up.
                except BaseException as error:  # noqa: BLE001 -- the steps raise it
                    call = made.throw(error)
                else:
                    call = made.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _carry_out(self, call: Call | Pause | Exec | Work) -> Raw:
        match call:
            case Call():
                return await self.transport.send(call)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Exec():
                await self.transport.read(call)
            case Work(run):
                await asyncio.to_thread(run)
        return {}

    async def close(self) -> None:
        """End the connections."""
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncObjects(Generic[Object]):
    """The objects of one kind."""

    def __init__(self, client: AsyncClient, resource: Resource, kind: type[Object]) -> None:
        self._client = client
        self._resource = resource
        self._kind = kind

    async def get(self, name: str, *, namespace: str | None = None) -> Object:
        """One object. Raises NotFoundError."""
        return await self._client.run(steps.read(self._resource, self._at(namespace), name, self._kind))

    async def list(
        self, *, namespace: str | None = None, all_namespaces: bool = False, labels: str = "", fields: str = ""
    ) -> Listed[Object]:
        """The objects that selectors match, of one namespace or of all; its `unreadable` tells of those that can't be read."""
        where = None if all_namespaces else self._at(namespace)
        return await self._client.run(steps.read_all(self._resource, where, self._kind, labels=labels, fields=fields))

    async def delete(self, name: str, *, namespace: str | None = None) -> None:
        """Delete one; what it owns goes after it. Raises NotFoundError."""
        await self._client.transport.send(calls.delete(self._resource, self._at(namespace), name))

    def _at(self, namespace: str | None) -> str:
        return namespace or self._client.namespace


class AsyncJobs(AsyncObjects[InferenceJob]):
    """InferenceJobs."""

    async def submit(self, job: InferenceJob | Raw, *, namespace: str | None = None, dry_run: bool = False) -> InferenceJob:
        """Create a job, given as a value or as a manifest. Raises AlreadyExistsError, and InvalidError with the server's words."""
        manifest = calls.manifest(job) if isinstance(job, InferenceJob) else job
        where = namespace or manifest.get("metadata", {}).get("namespace") or self._client.namespace
        return await self._client.run(steps.submit(manifest, where, dry_run=dry_run))

    async def suspend(self, name: str, *, namespace: str | None = None) -> InferenceJob:
        """Stop its workers; what is committed stays."""
        return await self._client.run(steps.set_suspend(self._at(namespace), name, suspend=True))

    async def resume(self, name: str, *, namespace: str | None = None) -> InferenceJob:
        """Let it go on where it was."""
        return await self._client.run(steps.set_suspend(self._at(namespace), name, suspend=False))

    async def retry(self, name: str, *, namespace: str | None = None, timeout: float = 60.0) -> InferenceJob:  # noqa: ASYNC109
        """Run a failed job again, as it is."""
        return await self._client.run(steps.retry(self._at(namespace), name, timeout=timeout, clock=time.monotonic))

    async def wait(
        self,
        name: str,
        goal: Goal = Goal.FINISHED,
        *,
        namespace: str | None = None,
        timeout: float = 300.0,  # noqa: ASYNC109 -- the same words as those of the other client
        on_change: Callable[[InferenceJob], None] = lambda _: None,
    ) -> InferenceJob:
        """Wait until a job has come so far, at most `timeout` seconds. Raises JobFailedError, WaitTimeoutError, NotFoundError."""
        made = steps.wait(self._at(namespace), name, goal, timeout=timeout, clock=time.monotonic, on_change=on_change)
        return await self._client.run(made)

    async def watch(
        self,
        name: str,
        *,
        namespace: str | None = None,
        timeout: float = 300.0,  # noqa: ASYNC109
    ) -> AsyncIterator[InferenceJob]:
        """A job as it is, and then after each change, for at most `timeout` seconds. Raises NotFoundError when it is deleted."""
        give_up = time.monotonic() + timeout
        job = await self.get(name, namespace=namespace)
        yield job
        while time.monotonic() < give_up:
            new = await self._client.run(steps.changed(job, give_up=give_up, clock=time.monotonic))
            if new is not job:
                yield new
            job = new

    async def result(self, name: str, *, namespace: str | None = None, timeout: float = 300.0) -> Result:  # noqa: ASYNC109
        """What a batch has answered, once it has. Raises as `wait` does."""
        return result_of(await self.wait(name, Goal.SUCCEEDED, namespace=namespace, timeout=timeout))

    async def download(
        self,
        name: str,
        directory: Path | str,
        *,
        namespace: str | None = None,
        partial: bool = False,
        force: bool = False,
        image: str = DEFAULT_IMAGE,
        timeout: float = 600.0,  # noqa: ASYNC109 -- the same words as those of the other client
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> Download:
        """Fetch what a batch has answered into a folder, each file checked by its digest; what is there already is kept.

        From a bucket by fsspec, with your own credentials, and from a claim by a helper pod that mounts it read-only. `partial`
        also takes an output that isn't finished, and `force` replaces another one in the folder. Raises ClientError;
        JobFailedError for a job that has failed, unless a partial output will do.
        """
        wish = Wish(Path(directory), partial=partial, force=force, image=image, timeout=timeout, on_progress=on_progress)
        return await self._client.run(downloads.download(self._at(namespace), name, wish, time.monotonic))
