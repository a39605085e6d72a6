"""Answers within their deadline when more is asked for than a server can give."""

import time
from dataclasses import dataclass

from bench.worker.load import Trace, open_loop, saturate
from bench.worker.models import Model
from bench.worker.readiness import ask
from bench.worker.scenarios.context import Context, Record, digits, folder, magika, noise
from bench.worker.scenarios.scrape import Counters, scrape
from bench.worker.sides import Running, running
from dev.console import say


@dataclass(frozen=True, slots=True)
class Case:
    """A model, the deadline of every request, and how often which multiples of the capacity are asked for."""

    model: Model
    deadline_ms: float
    factors: tuple[float, ...]
    rounds: int
    connections: int


_WINDOW_SECONDS, _GRACE_SECONDS = 3.0, 0.3
# The first moments, before a queue has formed, are everybody's best.
_WARM_SECONDS = 0.5
_CAPACITY_CONNECTIONS = 32
_CLIENT_LIMIT = 25_000.0
_BACKLOG_SECONDS = 10.0


def measure(context: Context) -> list[Record]:
    """A record for each model, side and round, with every factor of the side's own capacity."""
    cases = [Case(magika(), 100.0, (0.5, 1.0, 1.5, 2.0, 3.0), rounds=2, connections=128)]
    if context.rounds > 1:
        cases.append(Case(digits(), 20.0, (0.5, 1.0, 2.0), rounds=1, connections=512))
    records = []
    for case in cases:
        for number, side in context.turns(min(context.rounds, case.rounds)):
            with context.may_fail(side, where=f"goodput of {case.model.name}"), folder() as place:
                record: Record = {"scenario": "goodput", "round": number, "side": side.name, "model": case.model.name, **noise()}
                protocol = "binary" if "binary" in side.protocols else "json"
                # Without deadlines: where a server has to be told of them beforehand, that must not lower its capacity.
                with running(side, case.model, place / "plain") as server:
                    saturate(server, protocol, seconds=1.0, connections=_CAPACITY_CONNECTIONS)  # warm
                    capacity = saturate(server, protocol, seconds=2.0, connections=_CAPACITY_CONNECTIONS)["requestsPerSecond"]
                    if side.deadlines != "parameter":
                        record |= _record(server, case, number, protocol, capacity)
                if side.deadlines == "parameter":
                    with running(side, case.model, place / "deadlines", deadline_ms=case.deadline_ms) as server:
                        record |= _record(server, case, number, protocol, capacity)
                records.append(record)
                say(f"  goodput round {number}: {_line(record)}")
    return records


def _record(server: Running, case: Case, number: int, protocol: str, capacity: float) -> Record:
    before = scrape(server)
    factors: Record = {}
    for factor in case.factors:
        rate = capacity * factor
        if rate > _CLIENT_LIMIT:
            factors[str(factor)] = {"skipped": f"the client gives at most {_CLIENT_LIMIT:.0f} requests/s"}
            continue
        trace = open_loop(
            server,
            protocol,
            rate=rate,
            seconds=_WINDOW_SECONDS,
            deadline_ms=case.deadline_ms,
            seed=100 * number + int(factor * 10),
            connections=case.connections,
            grace_seconds=_GRACE_SECONDS,
        )
        factors[str(factor)] = _counted(trace, case.deadline_ms / 1e3)
        _wait_for_backlog(server, protocol, case)
    wasted = _wasted(before, scrape(server))
    return {"protocol": protocol, "deadlineMs": case.deadline_ms, "capacity": capacity, "factors": factors, "wasted": wasted}


def _wait_for_backlog(server: Running, protocol: str, case: Case) -> None:
    """Servers that compute for callers who have left do so now, and not in the next measurement."""
    request = server.side.bodies(case.model, protocol)[0]
    begun = time.monotonic()
    while (asked := time.monotonic()) - begun < _BACKLOG_SECONDS:
        ask(server.plan.http_port, request)
        if time.monotonic() - asked < case.deadline_ms / 1e3:
            return


def _counted(trace: Trace, deadline: float) -> Record:
    window = trace.intended >= _WARM_SECONDS
    answered = (trace.status == 200) & window
    latency = trace.done - trace.intended
    in_time = int((answered & (latency <= deadline)).sum())
    seconds = float(trace.intended[-1]) - _WARM_SECONDS
    return {
        "goodput": round(in_time / seconds, 1),
        "offered": round(int(window.sum()) / seconds, 1),
        "lateShare": round(1 - in_time / max(1, int(answered.sum())), 4),
        **trace.summary(),
    }


def _wasted(before: Counters, after: Counters) -> float | None:
    """Rows that were run for nobody, of all rows run; None for servers that do not tell."""
    rows = after.get("inference_rows_total", 0) - before.get("inference_rows_total", 0)
    if not rows:
        return None
    wasted = after.get("inference_wasted_rows_total", 0) - before.get("inference_wasted_rows_total", 0)
    return round(wasted / rows, 4)


def _line(record: Record) -> str:
    shares = [
        f"{factor}x {found['goodput'] / record['capacity']:.2f}"
        for factor, found in record["factors"].items()
        if "goodput" in found
    ]
    return f"{record['side']:9} {record['model']:7} capacity {record['capacity']:.0f}/s, of it in time: {', '.join(shares)}"
