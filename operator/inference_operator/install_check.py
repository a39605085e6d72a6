"""`python -m inference_operator.install_check NAMESPACE SECONDS`: runs a job to its end, for `helm test`."""

import asyncio
import logging
import sys
import uuid
from datetime import datetime, timedelta

from inference_operator.api.job import KIND
from inference_operator.api.schema import API_VERSION
from inference_operator.errors import OperatorError, RetryableError
from inference_operator.kube import paths
from inference_operator.kube.client import Kube, api_session
from inference_operator.kube.connection import ConnectionConfigError, connect
from inference_operator.kube.ports import Raw
from inference_operator.observability import logs
from inference_operator.runtime.bucket import TokenBucket
from inference_operator.runtime.clock import Clock, ServerClock
from inference_operator.state.objects import Key

log = logging.getLogger(__name__)

# It adds 1, and every worker's image has it: neither a volume nor the network is needed.
MODEL = "file:///opt/app/inference_worker/example/increment.onnx"
_ASK_SECONDS = 1.0


class CheckError(Exception):
    """The job has not succeeded; the message says how it stands."""


async def check(kube: Kube, namespace: str, seconds: float, clock: Clock) -> str:
    """Return the output of a job of this namespace. Raises CheckError when it fails or takes longer."""
    key = Key(namespace, f"install-check-{uuid.uuid4().hex[:8]}")
    made = await kube.create(paths.jobs(namespace), _job(key, clock.now() + timedelta(seconds=seconds)))
    try:
        return await _output(kube, key, clock, give_up=clock.monotonic() + seconds)
    finally:
        await kube.delete(paths.one_job(key), uid=made["metadata"]["uid"])


async def _output(kube: Kube, key: Key, clock: Clock, *, give_up: float) -> str:
    conditions: list[Raw] = []
    while clock.monotonic() < give_up:
        try:
            status = (await kube.get(paths.one_job(key))).get("status", {})
        except RetryableError:
            status = {}
        conditions = status.get("conditions", conditions)
        ended = next((c for c in conditions if c["type"] == "Succeeded" and c["status"] != "Unknown"), None)
        if ended is not None and ended["status"] == "True":
            return str(status.get("output", {}).get("data", ""))
        if ended is not None:
            raise CheckError(f"the job has failed: {_told(conditions)}")
        await asyncio.sleep(_ASK_SECONDS)
    if not conditions:
        raise CheckError(f"no operator has looked at the job: is one running that watches {key.namespace}?")
    raise CheckError(f"the job has not succeeded in time: {_told(conditions)}")


def _told(conditions: list[Raw]) -> str:
    return "; ".join(f"{c['type']} is {c['status']}, {c['reason']}: {c['message']}" for c in conditions)


def _job(key: Key, deadline: datetime) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {
            "model": MODEL,
            "accelerator": "cpu",
            "deadline": deadline.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "input": {"data": '{"x": [1, 2, 3]}'},
        },
    }


async def _run(namespace: str, seconds: float) -> str:
    clock = ServerClock()
    async with api_session(clock) as session:
        return await check(Kube(connect(), session, TokenBucket(10, 10, clock.monotonic)), namespace, seconds, clock)


def main() -> int:
    """The process: 0 when the job has succeeded."""
    logs.set_up("INFO", "text")
    namespace, seconds = sys.argv[1], float(sys.argv[2])
    try:
        log.info("a job in %s has succeeded: %s", namespace, asyncio.run(_run(namespace, seconds)))
    except (CheckError, OperatorError, ConnectionConfigError) as error:
        log.error("%s: %s", namespace, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
