"""What a fresh control plane needs before a load: CRDs and nodes."""

import asyncio
from collections.abc import Iterable

from bench.plane.kube import Client
from bench.plane.objects import JOBS, MODELS, NODES, Manifest, Room, Work, model, node
from inference_operator.errors import OperatorError
from inference_operator.manifests.crd import inference_job_crd, inference_model_crd

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_AT_ONCE = 32


async def furnish(kube: Client, rooms: Iterable[Room]) -> None:
    """Our CRDs, and nodes that are only objects."""
    for crd in (inference_job_crd(), inference_model_crd()):
        await kube.create(CRDS, crd)
    for room in rooms:
        body, with_status = node(room)
        await kube.create(NODES, body)
        await kube.apply(f"{NODES}/{room.name}/status", with_status)
        # Admission taints every new node; the controller that would take the taint off does not run here.
        made = await kube.get(f"{NODES}/{room.name}")
        made["spec"].pop("taints", None)
        await kube.replace(f"{NODES}/{room.name}", made)
    await served(kube, JOBS)


async def served(kube: Client, path: str) -> None:
    """Wait until a new kind is served: that takes a moment, under several errors."""
    while True:
        try:
            await kube.get(path)
            return
        except OperatorError:
            await asyncio.sleep(0.2)


async def put_model(kube: Client, name: str, work: Work) -> None:
    """An InferenceModel with a measured profile."""
    body, status = model(name, work)
    await kube.create(MODELS, body)
    await kube.apply(f"{MODELS}/{name}/status", status)


async def create_all(kube: Client, path: str, bodies: Iterable[Manifest]) -> None:
    """Create objects as quickly as a few connections can."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(body: Manifest) -> None:
        async with gate:
            await kube.create(path, body)

    await asyncio.gather(*(one(body) for body in bodies))
