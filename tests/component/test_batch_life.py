"""A batch job from creation to its end, against a well-behaved API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.component.kubelet import Kubelet
from tests.component.objects import a_batch, a_model, a_node, succeeded
from tests.component.operators import Ward, until

if TYPE_CHECKING:
    from tests.component.api_server import ApiServer


async def test_a_batch_job_succeeds_within_four_writes_and_two_about_its_model(
    server: ApiServer, ward: Ward, kubelet: Kubelet
) -> None:
    for obj in (a_node(), a_model(), a_batch()):
        server.create(obj)
    ward.start(server.url)

    await kubelet.play("job")
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")

    writes = [f"{c.method} {c.path}" for c in server.writes_for_jobs()]
    assert len(writes) <= 4, writes
    # That the spec of its model can be used and that the job uses it, and how fast it was.
    assert len(server.writes_about_models()) <= 2
    await until(lambda: "Succeeded" in server.events(), "the event of its success")
    # One for each transition; a run as short as this may end before anybody sees that it started.
    assert [reason for reason in server.events() if reason != "Started"] == ["Placed", "Succeeded"]
