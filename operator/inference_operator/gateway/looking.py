"""What all doors do alike: they look at the store when something has changed."""

import asyncio
import logging
from collections.abc import Callable

from inference_operator.gateway.snapshot import Service, services
from inference_operator.state.store import Store
from inference_operator.state.topology import ZONE_LABEL

log = logging.getLogger(__name__)

# A burst of events is one look.
_PAUSE_SECONDS = 0.02
# A look without cause, should one have been missed.
_LOOK_SECONDS = 5.0


async def follow(stir: asyncio.Event, look: Callable[[], None], what: str) -> None:
    """Look for ever, soon after each stir. `what` could not be made, says the log of a look that fails."""
    while True:
        try:
            await asyncio.wait_for(stir.wait(), _LOOK_SECONDS)
        except TimeoutError:
            pass
        await asyncio.sleep(_PAUSE_SECONDS)
        stir.clear()
        try:
            look()
        except Exception:
            # What was said last stays said: a door outlives a fault of ours.
            log.exception("%s could not be made", what)


def services_of(store: Store, *, tls: bool) -> tuple[Service, ...]:
    """All services, as the store has them now. See `snapshot.services`."""
    jobs = store.jobs.values()
    pods = {job.uid: store.workers_of(job) for job in jobs if not job.is_batch}
    return services(jobs, store.models, pods, store.readings, zones=zones_of(store), tls=tls)


def zones_of(store: Store) -> dict[str, str]:
    """The zones of nodes, by name."""
    return {name: zone for name, node in store.nodes.items() if (zone := node.labels.get(ZONE_LABEL))}
