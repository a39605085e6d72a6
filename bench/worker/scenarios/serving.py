"""One small model over every protocol of every side: start, memory, round trips, latency at a moderate rate, and the most."""

from typing import Any

from bench.worker.load import open_loop, saturate
from bench.worker.scenarios.context import Context, Record, digits, folder, noise
from bench.worker.sides import Running, running
from dev.console import say

PROTOCOLS = ("json", "binary", "grpc")
# Peers that need many callers to fill a batch get them, and those that suffer from many get few: the better of both counts.
CONNECTIONS = (8, 32)
_SATURATE_SECONDS, _OPEN_SECONDS = 1.5, 2.0
_ROUND_TRIPS = 500
# About half of what the slowest peer gives.
RATE = 400.0


def measure(context: Context, protocols: tuple[str, ...] = PROTOCOLS) -> list[Record]:
    """A record for each side in each round."""
    records = []
    for number, side in context.turns():
        with context.may_fail(side, where="serving"), folder() as place:
            record: Record = {"scenario": "serving", "round": number, "side": side.name, **noise()}
            with running(side, digits(), place) as server:
                resident, proportional = server.started.memory_mib()
                record |= {
                    "readySeconds": round(server.ready_seconds, 3),
                    "firstAnswerSeconds": round(server.answer_seconds, 3),
                    "residentMib": round(resident, 1),
                    "proportionalMib": round(proportional, 1),
                }
                for protocol in protocols:
                    if protocol in side.protocols:
                        record[protocol] = _protocol(server, protocol, number)
            records.append(record)
            say(f"  serving round {number}: {_line(record)}")
    return records


def _protocol(server: Running, protocol: str, number: int) -> Record:
    saturate(server, protocol, seconds=0.4, connections=CONNECTIONS[0])  # warm
    serial = open_loop(server, protocol, rate=_ROUND_TRIPS, seconds=1.0, arrivals="serial", connections=1, grace_seconds=10)
    trips = (serial.done - serial.sent)[serial.good] * 1e6
    record: Record = {
        "roundTripMinMicroseconds": round(float(trips.min()), 1),
        "roundTripP50Microseconds": round(float(sorted(trips)[len(trips) // 2]), 1),
        "open": open_loop(server, protocol, rate=RATE, seconds=_OPEN_SECONDS, seed=number + 1).summary(),
    }
    runs = {str(count): saturate(server, protocol, seconds=_SATURATE_SECONDS, connections=count) for count in CONNECTIONS}
    return record | {"saturated": runs, **max(runs.values(), key=_rate)}


def _rate(run: Any) -> float:
    return float(run["requestsPerSecond"])


def _line(record: Record) -> str:
    parts = [f"{record['side']:9} ready {record['readySeconds']:.2f} s {record['residentMib']:.0f} MiB"]
    parts += [
        f"{protocol} {record[protocol]['requestsPerSecond']:.0f}/s {record[protocol]['cpuMicroseconds']:.0f} us"
        for protocol in PROTOCOLS
        if protocol in record
    ]
    return ", ".join(parts)
