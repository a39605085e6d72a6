"""A batch that a backup has brought back, whose output a newer job of its name has claimed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from inference_operator.api.schema import rfc3339
from inference_protocol.messages import Rival, TerminationReport
from inference_protocol.reasons import WorkerReason
from tests.component.kubelet import SUCCESS
from tests.component.objects import a_batch, a_model, a_node, condition, reason, succeeded
from tests.component.operators import until
from tests.simulation.cluster import config_of

if TYPE_CHECKING:
    from tests.component.api_server import ApiServer
    from tests.component.kubelet import Kubelet
    from tests.component.operators import Ward

NEWER = rfc3339(datetime.now(UTC) - timedelta(seconds=30))
CLAIMED = TerminationReport(
    "Failed",
    "attempt 1 of job default/job (uid of-the-newer) has claimed 'out'",
    reason=WorkerReason.OUTPUT_CLAIMED,
    rival=Rival("of-the-newer", NEWER),
)


async def test_it_takes_its_output_over_by_its_status_and_succeeds(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    for obj in (a_node(), a_model(), a_batch()):
        server.create(obj)
    ward.start(server.url)
    claims = []
    for number, report in enumerate((CLAIMED, SUCCESS), 1):
        pod = await kubelet.worker("job", number)
        claims.append(config_of(pod).created)
        kubelet.run(pod)
        kubelet.end(pod, report)
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")

    job, (first, second) = server.get("inferencejobs", "job"), claims
    assert first == job["metadata"]["creationTimestamp"]
    assert second == job["status"]["outputClaimTime"] > NEWER
    assert job["status"]["attempts"] == 2 and not job["status"].get("failedAttempts")


async def test_an_operator_whose_view_is_old_takes_nothing_over_from_the_job_that_is_there(
    server: ApiServer, ward: Ward, kubelet: Kubelet
) -> None:
    for obj in (a_node(), a_model(), a_batch()):
        server.create(obj)
    ward.start(server.url)
    pod = await kubelet.worker("job")
    kubelet.run(pod)
    await until(lambda: reason(server.get("inferencejobs", "job")) == "Running", "the run")

    # The job is deleted and created again, and the operator hears nothing of that.
    server.hold("inferencejobs")
    server.delete("inferencejobs", "job", orphan=True)
    newer = server.create(a_batch())["metadata"]["uid"]
    before = len(server.calls("PATCH", "/inferencejobs/job/status"))
    kubelet.end(pod, CLAIMED)
    await until(lambda: len(server.calls("PATCH", "/inferencejobs/job/status")) > before, "a write to the job that is gone")
    assert "status" not in server.get("inferencejobs", "job")

    server.release("inferencejobs")
    server.delete("pods", pod["metadata"]["name"])
    await until(lambda: newer in {config_of(one).uid for one in server.all("pods")}, "the newer job's worker")
    assert {config_of(one).uid for one in server.all("pods")} == {newer}
    assert "outputClaimTime" not in server.get("inferencejobs", "job").get("status", {})


async def test_a_claim_that_comes_again_uses_up_its_attempts_and_says_what_to_do(
    server: ApiServer, ward: Ward, kubelet: Kubelet
) -> None:
    for obj in (a_node(), a_model(), a_batch(maxAttempts=2)):
        server.create(obj)
    ward.start(server.url, settings={"backoffSeconds": 0.1})
    await kubelet.play("job", CLAIMED, CLAIMED, CLAIMED, patient=False)
    found = await until(lambda: condition(server.get("inferencejobs", "job"), "Stalled"), "the end")

    assert found["reason"] == "OutputClaimed" and "(uid of-the-newer)" in found["message"]
    assert "find out which one does, and set another output.uri here or there" in found["message"]
    assert len(server.all("pods")) <= 3 and server.get("inferencejobs", "job")["status"]["failedAttempts"] == 2
