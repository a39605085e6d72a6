"""What the gateway's bounds say of rows: of all that were measured, and of nothing else."""

import asyncio

from bench.gateway.callers import Pool, Seen, closed_loop, open_loop, request
from bench.gateway.run import Row, targets
from bench.gateway.stage import Paced

ROWS: list[Row] = [
    {"part": "plain", "way": "plain", "rate": 1000, "p99Ms": 10.0},
    {"part": "plain", "way": "gateway", "rate": 950, "p99Ms": 12.0},
    {"part": "speeds", "way": "clairvoyant", "p99Ms": 50.0},
    {"part": "speeds", "way": "gateway", "p99Ms": 55.0},
    {"part": "speeds", "way": "leastRequest", "p99Ms": 100.0},
    {"part": "speeds", "way": "roundRobin", "p99Ms": 900.0},
    {"part": "shares", "canaryPercent": 10.1, "answersChanged": 0},
    {"part": "shares", "canaryPercent": 9.2, "answersChanged": 1},
    {"part": "lost", "what": "drain", "lost": 0},
    {"part": "lost", "what": "drain", "lost": 2},
    {"part": "cache", "inputs": "repeated", "ratio": 7.5},
    {"part": "cache", "inputs": "new", "ratio": 0.9},
    {"part": "frames", "scene": "still", "framesPerRun": 300.0, "belowBound": 0},
    {"part": "frames", "scene": "moving", "framesPerRun": 1.0, "belowBound": 1},
    {"part": "tenants", "way": "alone", "p99Ms": 4.0},
    {"part": "tenants", "way": "atQuota", "p99Ms": 4.0},
    {"part": "tenants", "way": "overQuota", "p99Ms": 4.2},
    {"part": "tenants", "way": "noQuota", "p99Ms": 40.0},
    {"part": "connections", "void": "too few open files are allowed"},
]


def test_each_bound_is_held_against_its_own_rows() -> None:
    found = {target.id: (target.value, target.holds) for target in targets(ROWS)}

    assert found == {
        "rate": (0.95, True),
        "p99": (1.2, False),
        "speeds-gateway": (1.1, True),
        "speeds-leastRequest": (2.0, False),
        "speeds-roundRobin": (18.0, False),
        "canary": (0.8, False),
        "mirror": (1, False),
        "drain": (2, False),
        "cache": (7.5, True),
        "frames": (300.0, True),
        "frames-below": (1, False),
        "tenants-atQuota": (1.0, True),
        "tenants-overQuota": (1.05, True),
        "tenants-noQuota": (10.0, False),
    }


async def test_callers_count_what_is_answered_refused_and_cut_off() -> None:
    answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 429 Full\r\nContent-Length: 0\r\n\r\n", b""]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answers:
            await reader.readuntil(b"\r\n\r\nbody")
            writer.write(answers.pop(0))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool, given = Pool("127.0.0.1", port), request(b"body", "/path")
    seen = Seen([(0.1, await pool.ask(given)) for _ in range(3)], seconds=1.0)
    server.close()

    assert seen.statuses == {"200": 1, "429": 1, "0": 1} and seen.lost == 2 and seen.rate == 1


async def test_open_callers_do_not_wait_for_answers_and_closed_ones_do() -> None:
    worker = Paced("w", 0.05)
    server = await asyncio.start_server(worker.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool, given = Pool("127.0.0.1", port), request(b"{}", "/path")
    alone = await closed_loop("127.0.0.1", port, given, callers=1, seconds=0.3)
    over = await open_loop(lambda: pool.ask(given), rate=100, seconds=0.3, seed=1)
    pool.close()
    server.close()

    assert max(alone.good) < 0.2 < max(over.good) and len(over.answers) > 2 * len(alone.answers)
