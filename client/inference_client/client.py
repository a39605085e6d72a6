"""The client for ordinary code: each method returns when it is done."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Self

from inference_client import calls, downloads, pod_exec, steps
from inference_client.api import InferenceJob, InferenceModel
from inference_client.calls import Call, Exec, Pause, Raw, Resource, Work
from inference_client.downloads import Download, Progress, Wish
from inference_client.job_state import Goal
from inference_client.result import Result, result_of
from inference_client.steps import AnySteps, Listed, Object, T
from inference_client.transport import Transport
from inference_client.volume_pod import DEFAULT_IMAGE


class Client:
    """Jobs and models of one cluster; `namespace` is meant where a method is given none."""

    def __init__(self, transport: Transport, namespace: str | None = None) -> None:
        self.transport = transport
        self.namespace = namespace or transport.namespace
        self.jobs = Jobs(self, calls.JOBS, InferenceJob)
        self.models = Objects(self, calls.MODELS, InferenceModel)

    @classmethod
    def from_kubeconfig(cls, kubeconfig: str | None = None, *, context: str | None = None, namespace: str | None = None) -> Self:
        """A client by kubeconfig and context, as kubectl chooses them. Raises ConfigurationError."""
        return cls(Transport.from_kubeconfig(kubeconfig, context), namespace)

    def run(self, made: AnySteps[T]) -> T:
        """Carry steps out. Raises ClientError."""
        try:
            call = next(made)
            while True:
                try:
                    answer = self._carry_out(call)
                # Also an interruption: steps may have something to clean up.
                except BaseException as error:  # noqa: BLE001 -- the steps raise it
                    call = made.throw(error)
                else:
                    call = made.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value

    def _carry_out(self, call: Call | Pause | Exec | Work) -> Raw:
        match call:
            case Call():
                return self.transport.send(call)
            case Pause(seconds):
                time.sleep(seconds)
            case Exec():
                pod_exec.read(self.transport.api, call)
            case Work(run):
                run()
        return {}

    def close(self) -> None:
        """End the connections."""
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Objects(Generic[Object]):
    """The objects of one kind."""

    def __init__(self, client: Client, resource: Resource, kind: type[Object]) -> None:
        self._client = client
        self._resource = resource
        self._kind = kind

    def get(self, name: str, *, namespace: str | None = None) -> Object:
        """One object. Raises NotFoundError."""
        return self._client.run(steps.read(self._resource, self._at(namespace), name, self._kind))

    def list(
        self, *, namespace: str | None = None, all_namespaces: bool = False, labels: str = "", fields: str = ""
    ) -> Listed[Object]:
        """The objects that selectors match, of one namespace or of all; its `unreadable` tells of those that can't be read."""
        where = None if all_namespaces else self._at(namespace)
        return self._client.run(steps.read_all(self._resource, where, self._kind, labels=labels, fields=fields))

    def delete(self, name: str, *, namespace: str | None = None) -> None:
        """Delete one; what it owns goes after it. Raises NotFoundError."""
        self._client.transport.send(calls.delete(self._resource, self._at(namespace), name))

    def _at(self, namespace: str | None) -> str:
        return namespace or self._client.namespace


class Jobs(Objects[InferenceJob]):
    """InferenceJobs."""

    def submit(self, job: InferenceJob | Raw, *, namespace: str | None = None, dry_run: bool = False) -> InferenceJob:
        """Create a job, given as a value or as a manifest. Raises AlreadyExistsError, and InvalidError with the server's words."""
        manifest = calls.manifest(job) if isinstance(job, InferenceJob) else job
        where = namespace or manifest.get("metadata", {}).get("namespace") or self._client.namespace
        return self._client.run(steps.submit(manifest, where, dry_run=dry_run))

    def suspend(self, name: str, *, namespace: str | None = None) -> InferenceJob:
        """Stop its workers; what is committed stays."""
        return self._client.run(steps.set_suspend(self._at(namespace), name, suspend=True))

    def resume(self, name: str, *, namespace: str | None = None) -> InferenceJob:
        """Let it go on where it was."""
        return self._client.run(steps.set_suspend(self._at(namespace), name, suspend=False))

    def retry(self, name: str, *, namespace: str | None = None, timeout: float = 60.0) -> InferenceJob:
        """Run a failed job again, as it is."""
        return self._client.run(steps.retry(self._at(namespace), name, timeout=timeout, clock=time.monotonic))

    def wait(
        self,
        name: str,
        goal: Goal = Goal.FINISHED,
        *,
        namespace: str | None = None,
        timeout: float = 300.0,
        on_change: Callable[[InferenceJob], None] = lambda _: None,
    ) -> InferenceJob:
        """Wait until a job has come so far, at most `timeout` seconds. Raises JobFailedError, WaitTimeoutError, NotFoundError."""
        made = steps.wait(self._at(namespace), name, goal, timeout=timeout, clock=time.monotonic, on_change=on_change)
        return self._client.run(made)

    def watch(self, name: str, *, namespace: str | None = None, timeout: float = 300.0) -> Iterator[InferenceJob]:
        """A job as it is, and then after each change, for at most `timeout` seconds. Raises NotFoundError when it is deleted."""
        give_up = time.monotonic() + timeout
        job = self.get(name, namespace=namespace)
        yield job
        while time.monotonic() < give_up:
            new = self._client.run(steps.changed(job, give_up=give_up, clock=time.monotonic))
            if new is not job:
                yield new
            job = new

    def result(self, name: str, *, namespace: str | None = None, timeout: float = 300.0) -> Result:
        """What a batch has answered, once it has. Raises as `wait` does."""
        return result_of(self.wait(name, Goal.SUCCEEDED, namespace=namespace, timeout=timeout))

    def download(
        self,
        name: str,
        directory: Path | str,
        *,
        namespace: str | None = None,
        partial: bool = False,
        force: bool = False,
        image: str = DEFAULT_IMAGE,
        timeout: float = 600.0,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> Download:
        """Fetch what a batch has answered into a folder, each file checked by its digest; what is there already is kept.

        From a bucket by fsspec, with your own credentials, and from a claim by a helper pod that mounts it read-only. `partial`
        also takes an output that isn't finished, and `force` replaces another one in the folder. Raises ClientError;
        JobFailedError for a job that has failed, unless a partial output will do.
        """
        wish = Wish(Path(directory), partial=partial, force=force, image=image, timeout=timeout, on_progress=on_progress)
        return self._client.run(downloads.download(self._at(namespace), name, wish, time.monotonic))
