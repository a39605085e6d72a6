"""A tenant that sends ten times its quota: what the others notice, with the quota and without."""

import asyncio
from pathlib import Path
from typing import Any

from bench.gateway.callers import Pool, Seen, open_loop, request
from bench.gateway.stage import PATH, answers, gateway, paced
from inference_operator.gateway.snapshot import Backend, Service
from inference_operator.tenants import Tenant, Tenants
from tests import loopback

_THROUGH = f"/bench{PATH}"
_KEYS = {name: name * 20 for name in ("loud", "quiet")}
# The worker takes 4 ms for a request: the others ask three tenths of it, and the loud one may have a twenty-fifth.
_WORKER_SECONDS, _QUIET_RATE, _QUOTA = 0.004, 75.0, 10.0
_TIMES = 10
# Short and often, so that whatever else the machine does meets all.
_TURNS, _TURN_SECONDS = 10, 1.5


async def tenants(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """The p99 of the quiet one: alone, beside the loud one, and beside it without a quota, by turns."""
    (folder / "keys").write_text("".join(f"{name} {key}\n" for name, key in _KEYS.items()))
    limited, free = _tenants(folder, _QUOTA), _tenants(folder, None)
    address, found = loopback.address(9), []
    service = Service("bench", "m", "1", True, (Backend(address, "a"),))
    async with (
        paced(address, "worker", _WORKER_SECONDS),
        gateway(folder, service, name="limited", tenants=limited) as told,
        gateway(folder, service, name="free", tenants=free) as other,
    ):
        for door in (told, other):
            await answers("127.0.0.1", door.port, _THROUGH, {"x-api-key": _KEYS["quiet"]})
        ways = {"alone": (told.port, 0), "overQuota": (told.port, _TIMES), "noQuota": (other.port, _TIMES)}
        for number in range(rounds):
            seen = {way: (Seen(), Seen()) for way in ways}
            for turn in range(_TURNS):
                for way, (port, times) in sorted(ways.items(), reverse=bool(turn % 2)):
                    seed = number * _TURNS + turn
                    asked = await asyncio.gather(_asks("loud", port, times * _QUOTA, seed), _asks("quiet", port, _QUIET_RATE, seed))
                    for whole, part in zip(seen[way], asked, strict=True):
                        whole.answers += part.answers
            for way, (loud, quiet) in seen.items():
                row = {"p50Ms": round(quiet.quantile(50), 2), "p99Ms": round(quiet.quantile(99), 2), "lost": quiet.lost}
                found.append({"part": "tenants", "way": way, **row, "loud": loud.statuses})
    return found


def _tenants(folder: Path, quota: float | None) -> Tenants:
    known = (Tenant("loud", requests_per_second=quota), Tenant("quiet"))
    return Tenants(enabled=True, key_file=str(folder / "keys"), list=known)


async def _asks(name: str, port: int, rate: float, seed: int) -> Seen:
    """What becomes of a tenant's requests."""
    if not rate:
        return Seen()
    pool, given = Pool("127.0.0.1", port), request(b"{}", _THROUGH, {"x-api-key": _KEYS[name]})
    seen = await open_loop(lambda: pool.ask(given), rate=rate, seconds=_TURN_SECONDS, seed=seed + (name == "loud") * 1000)
    pool.close()
    return seen
