"""Tells the caches of nodes what they should have, and keeps what they answer."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from yarl import URL

from inference_operator.errors import RetryableError
from inference_operator.kube.key_secret import KeySecret
from inference_operator.nodecache.grants import granted
from inference_operator.nodecache.prefetch import orders
from inference_operator.runtime.bounded_http import BoundedHttp, HttpFaultError
from inference_operator.runtime.clock import Clock
from inference_operator.settings import NodeCache
from inference_operator.state.node_caches import CacheState, NodeAgent, NodeModel
from inference_operator.state.request import Request, job_request
from inference_operator.state.store import Store
from inference_protocol.messages import encode
from inference_protocol.node_cache import (
    MOST_WANTED,
    PORT,
    SIGNATURE_HEADER,
    WANTED_LIMIT_BYTES,
    WANTED_PATH,
    Wanted,
    WantedModel,
    WantedState,
    signature,
)

log = logging.getLogger(__name__)

FIELD = "node-cache-key"
_ROUND_SECONDS = 1.0
# A cache answers at once: it fetches behind its answers.
_ANSWER_SECONDS = 3.0
_AT_ONCE = 32


class NodeCaches:
    """The caches of all nodes, as the leader speaks to them."""

    def __init__(
        self,
        store: Store,
        http: BoundedHttp,
        clock: Clock,
        secret: KeySecret,
        settings: NodeCache,
        wake: Callable[[Request], None],
    ) -> None:
        self._store = store
        self._http = http
        self._clock = clock
        self._secret = secret
        self._settings = settings
        self._wake = wake
        self._key: bytes | None = None
        self._gate = asyncio.Semaphore(_AT_ONCE)
        # What nodes were told last: who has nothing to fetch is told nothing.
        self._told: dict[str, tuple[WantedModel, ...]] = {}

    async def open(self) -> None:
        """Read the key; make it where the Secret is still empty. Raises OperatorError."""
        self._key = await self._secret.read()

    def granted(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Return a worker's pod with its grant. Raises RetryableError before the key is read."""
        return granted(pod, self._opened, self._settings)

    async def run(self) -> None:
        """Tell for ever."""
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            try:
                await self.round()
            except Exception:
                # Whatever a cache has said, jobs go on without it.
                log.exception("a round of the nodes' caches failed")

    async def round(self) -> None:
        """Tell each node what it should have, and wake the services for which something has changed."""
        for key in self._store.prefetches.keys() - self._store.jobs.keys():
            del self._store.prefetches[key]
        agents = {agent.node: agent for _, agent in sorted(self._store.node_caches.items())}
        wanted = orders(self._store.prefetches.values(), agents, most=MOST_WANTED)
        due = [node for node, models in wanted.items() if models or self._told.get(node)]
        answers = await asyncio.gather(*(self._tell(agents[node], wanted[node]) for node in due))
        self._told = {node: wanted[node] for node in due}
        before = self._store.node_models
        self._store.node_models = {
            node: _taken_in(before.get(node, {}), wanted[node], answer, self._clock.now())
            for node, answer in zip(due, answers, strict=True)
        }
        for key, prefetch in self._store.prefetches.items():
            if any(before.get(node) != self._store.node_models.get(node) for node in prefetch.nodes):
                self._wake(job_request(key))

    async def _tell(self, agent: NodeAgent, models: tuple[WantedModel, ...]) -> WantedState | str:
        """What a cache answers, or why there is no answer."""
        body = encode(Wanted(self._clock.now().timestamp(), models))
        host = f"[{agent.address}]" if ":" in agent.address else agent.address
        headers = {SIGNATURE_HEADER: signature(self._opened, body), "Content-Type": "application/json"}
        try:
            async with self._gate:
                url = URL(f"http://{host}:{PORT}{WANTED_PATH}")
                answer = await self._http.post(url, body, headers=headers, seconds=_ANSWER_SECONDS, most_bytes=WANTED_LIMIT_BYTES)
            if answer.status != 200:
                return f"its cache answered HTTP {answer.status}"
            return msgspec.json.decode(answer.body, type=WantedState)
        except (HttpFaultError, ValueError) as error:
            log.debug("%s: %s", agent, error)
            return "its cache does not answer"

    @property
    def _opened(self) -> bytes:
        if self._key is None:
            raise RetryableError("the key of the nodes' caches is not read yet")
        return self._key


def _taken_in(
    before: Mapping[tuple[str, str], NodeModel], wanted: tuple[WantedModel, ...], answer: WantedState | str, now: datetime
) -> dict[tuple[str, str], NodeModel]:
    """How the wanted models of a node stand. What its cache says of others is none of its business."""
    told = {} if isinstance(answer, str) else {(one.namespace, one.digest): one for one in answer.models}
    found: dict[tuple[str, str], NodeModel] = {}
    for model in wanted:
        key = model.namespace, model.source.digest or ""
        since = before[key].since if key in before else now
        if (one := told.get(key)) is not None:
            found[key] = NodeModel(CacheState(one.state), one.message, since)
        else:
            found[key] = NodeModel(CacheState.FAILED, answer if isinstance(answer, str) else "its cache says nothing of it", since)
    return found
