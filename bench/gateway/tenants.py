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
# The worker takes 4 ms for a request. The others ask three tenths of it, and the loud one may have a twenty-fifth.
_WORKER_SECONDS, _QUIET_RATE, _QUOTA = 0.004, 75.0, 10.0
_TIMES = 10
# Short and often. A turn in which this process once came so much too late says nothing of the gateway, and is left out.
_TURNS, _TURN_SECONDS, _LATE_SECONDS = 12, 1.0, 0.01


async def tenants(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """The p99 of the quiet one by turns: alone, beside the loud one at its quota and over it, and over it without a quota."""
    (folder / "keys").write_text("".join(f"{name} {key}\n" for name, key in _KEYS.items()))
    limited, free = _tenants(folder, _QUOTA), _tenants(folder, None)
    address = loopback.address(9)
    service = Service("bench", "m", "1", True, (Backend(address, "a"),))
    async with (
        paced(address, "worker", _WORKER_SECONDS),
        gateway(folder, service, name="limited", tenants=limited) as told,
        gateway(folder, service, name="free", tenants=free) as other,
    ):
        for door in (told, other):
            await answers("127.0.0.1", door.port, _THROUGH, {"x-api-key": _KEYS["quiet"]})
        ways = {
            "alone": (told.port, 0),
            "atQuota": (told.port, 1),
            "overQuota": (told.port, _TIMES),
            "noQuota": (other.port, _TIMES),
        }
        return await _measured(ways, rounds * _TURNS)


async def _measured(ways: dict[str, tuple[int, int]], turns: int) -> list[dict[str, Any]]:
    """A row for each way, of all its turns together. `times` says how often its quota the loud one sends."""
    seen, left = {way: (Seen(), Seen()) for way in ways}, dict.fromkeys(ways, 0)
    for turn in range(turns):
        for way, (port, times) in sorted(ways.items(), reverse=bool(turn % 2)):
            asked = (_asks("loud", port, times * _QUOTA, turn), _asks("quiet", port, _QUIET_RATE, turn))
            loud, quiet, late = await asyncio.gather(*asked, _lateness())
            if late <= _LATE_SECONDS:
                left[way] += 1
                for whole, part in zip(seen[way], (loud, quiet), strict=True):
                    whole.answers += part.answers
    if not min(left.values()):
        return [{"part": "tenants", "void": f"the machine was too busy in all of {turns} turns"}]
    return [_row(way, loud, quiet) | {"turns": left[way]} for way, (loud, quiet) in seen.items()]


def _row(way: str, loud: Seen, quiet: Seen) -> dict[str, Any]:
    quantiles = {f"p{percent}Ms": round(quiet.quantile(percent), 2) for percent in (50, 90, 99)}
    return {"part": "tenants", "way": way, **quantiles, "lost": quiet.lost, "loud": loud.statuses}


async def _lateness() -> float:
    """Seconds by which this process came too late at most in a turn."""
    loop = asyncio.get_running_loop()
    end, most = loop.time() + _TURN_SECONDS, 0.0
    while (due := loop.time() + 0.005) < end:
        await asyncio.sleep(0.005)
        most = max(most, loop.time() - due)
    return most


def _tenants(folder: Path, quota: float | None) -> Tenants:
    # Without a burst: one that floods for longer has none left.
    loud = Tenant("loud", requests_per_second=quota, request_burst=1 if quota else None)
    return Tenants(enabled=True, key_file=str(folder / "keys"), list=(loud, Tenant("quiet")))


async def _asks(name: str, port: int, rate: float, seed: int) -> Seen:
    """What becomes of a tenant's requests."""
    if not rate:
        return Seen()
    pool, given = Pool("127.0.0.1", port), request(b"{}", _THROUGH, {"x-api-key": _KEYS[name]})
    seen = await open_loop(lambda: pool.ask(given), rate=rate, seconds=_TURN_SECONDS, seed=seed + (name == "loud") * 1000)
    pool.close()
    return seen
