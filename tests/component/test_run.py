"""`make run` with the real operator against the scripted API server: kubectl and Helm are stand-ins, the rest is as it is."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests import cluster_tools
from tests.component.api_server import TASK_KEY
from tests.component.objects import a_batch, a_model, a_node, succeeded
from tests.component.operators import PATIENCE_SECONDS, REPOSITORY, SETTINGS, environment, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster_tools import ClusterTools
    from tests.component.api_server import ApiServer
    from tests.component.kubelet import Kubelet

LEASE = ("leases", "inference-operator", cluster_tools.NAMESPACE)


async def test_the_operator_of_the_checkout_leads_from_outside_and_gives_way_again(
    server: ApiServer, kubelet: Kubelet, tmp_path: Path
) -> None:
    # The upgrade of the release makes the Secret; that of the stand-in makes nothing.
    task_key = {**TASK_KEY, "metadata": {**TASK_KEY["metadata"], "namespace": cluster_tools.NAMESPACE}}
    for obj in (a_node(), a_model(), a_batch(), task_key):
        server.create(obj)
    tools, log = cluster_tools.make(tmp_path / "tools", server=server.url, settings=SETTINGS), tmp_path / "log"

    with make_run(tools, log) as process:
        await until(lambda: "leading as" in log.read_text() or process.poll() is not None, "a leader")
        assert process.poll() is None, log.read_text()
        await kubelet.play("job")
        await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")

        process.terminate()
        await until(lambda: process.poll() is not None, "the end")

    assert process.returncode == 0, log.read_text()
    assert {call.who for call in server.writes()} == {"account-token"}
    assert server.get(*LEASE)["spec"]["holderIdentity"] == ""
    assert tools.journal[-1].startswith("helm rollback inference-operator 7")


@contextmanager
def make_run(tools: ClusterTools, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run it, and end it with its operator whatever happens."""
    command = [sys.executable, "-m", "dev.run", "--yes", "--port", "0"]
    with log.open("wb") as target:
        process = subprocess.Popen(
            command, env={**environment(), **tools.variables()}, cwd=REPOSITORY, stdout=target, stderr=target
        )
    try:
        yield process
    finally:
        # It ends its operator when it is told to stop, and could not once it is killed.
        process.terminate()
        process.wait(timeout=PATIENCE_SECONDS)
