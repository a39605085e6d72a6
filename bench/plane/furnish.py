"""What a fresh control plane needs before a load: nodes and models."""

import asyncio
from collections.abc import Iterable

from bench.plane.kube import Client
from bench.plane.objects import CLAIM, JOBS, MODELS, NAMESPACE, NODES, Manifest, Room, Work, model, node, volume
from inference_operator.errors import OperatorError

_CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
_AT_ONCE = 32


async def furnish(kube: Client, rooms: Iterable[Room]) -> None:
    """Nodes that are only objects, and a volume for answers, once our kinds are served."""
    await served(kube, JOBS)
    for room in rooms:
        body, with_status = node(room)
        await kube.create(NODES, body)
        await kube.apply(f"{NODES}/{room.name}/status", with_status)
        # Admission taints every new node; the controller that would take the taint off does not run here.
        made = await kube.get(f"{NODES}/{room.name}")
        made["spec"].pop("taints", None)
        await kube.replace(f"{NODES}/{room.name}", made)
    whole, claim, bound = volume()
    await kube.create("/api/v1/persistentvolumes", whole)
    await kube.create(_CLAIMS, claim)
    await kube.apply(f"{_CLAIMS}/{CLAIM}/status", bound)


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
