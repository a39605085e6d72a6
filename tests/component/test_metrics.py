"""What operators tell Prometheus: each thing by one replica, and nothing of what is gone."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.component.objects import LATER, a_batch, a_model, a_node, succeeded
from tests.component.operators import PATIENCE_SECONDS, until, until_status
from tests.component.test_refusals import refuse
from tests.loopback import free_ports

if TYPE_CHECKING:
    from tests.component.api_server import ApiServer
    from tests.component.kubelet import Kubelet
    from tests.component.operators import Ward

_PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md").read_text()
OF_LEADERS = re.findall(r"^\| `(\w+)`", _PAGE.split("the leader alone")[1].split("## Worker")[0], re.MULTILINE)

Series = dict[tuple[str, ...], float]


async def scraped(port: int) -> Series:
    """Every series by its name and the values of its labels, in the order of their names."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
    samples = [sample for family in families for sample in family.samples]
    return {(s.name, *(value for _, value in sorted(s.labels.items()))): s.value for s in samples}


def names(series: Series) -> set[str]:
    return {name for name, *_ in series}


async def test_the_leader_alone_tells_of_the_cluster(server: ApiServer, ward: Ward) -> None:
    for obj in (a_node(), a_model(), a_batch()):
        server.create(obj)
    leading, waiting = free_ports(2)
    await ward.start(server.url, who="first", settings={"httpPort": leading}).says("leading as")
    await ward.start(server.url, who="second", settings={"httpPort": waiting}).says("synced")

    leader, standby = names(await scraped(leading)), names(await scraped(waiting))

    assert {"inference_jobs", "inference_nodes", "inference_time_to_place_seconds_count"} <= leader
    assert {"inference_operator_build_info", "inference_operator_leading"} <= leader & standby
    assert [name for name in standby if name.startswith(tuple(OF_LEADERS))] == []


async def test_a_job_is_counted_while_it_is_there_and_its_end_for_good(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    (port,) = free_ports(1)
    await ward.lead(server, settings={"httpPort": port})
    for obj in (a_node(), a_model(), a_batch(deadline=LATER)):
        server.create(obj)
    await kubelet.play("job")
    await until_status(succeeded, server, "job")

    there = await scraped(port)
    server.delete("inferencejobs", "job")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "inference_jobs" in names(gone := await scraped(port)):
            await asyncio.sleep(0.02)

    assert there["inference_jobs", "batch", "default", "Succeeded", "Succeeded"] == 1
    met, ended = ("inference_deadlines_total", "batch", "default", "Met"), ("inference_time_to_complete_seconds_count", "batch")
    attempt = next(key for key in there if key[0] == "inference_attempts_total")
    assert (there[met], there[ended], there[attempt]) == (gone[met], gone[ended], gone[attempt]) == (1, 1, 1)
    assert not any("job" in key for key in gone)


async def test_requests_that_the_api_server_refuses_as_too_many_are_counted(server: ApiServer, ward: Ward) -> None:
    (port,) = free_ports(1)
    for obj in (a_node(), a_model()):
        server.create(obj)
    await ward.lead(server, settings={"httpPort": port})
    server.script("PATCH", "/status$", refuse(429, "TooManyRequests"), times=3)
    server.create(a_batch(model="unknown"))
    await until(lambda: len(server.calls("PATCH", "/job/status$")) == 4, "the fourth try")

    found = await scraped(port)

    assert found["inference_operator_api_requests_total", "429", "PATCH"] == 3
    assert found["inference_operator_reconcile_errors_total", "unavailable", "InferenceJob"] == 3
