"""When a service has no workers for want of requests."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from inference_operator.api.gateway import ServeGateway
from inference_operator.api.job import Autoscaling, AutoscalingMode, InferenceJobSpec, Serve
from inference_operator.api.job_status import InferenceJobStatus
from inference_operator.jobs.plan import plan
from inference_operator.jobs.replicas import replicas
from inference_operator.jobs.sleep import asleep_since, sleeps_at
from inference_operator.jobs.state import job_state
from inference_operator.settings import GatewaySettings
from inference_operator.state.observed import Observed
from tests.builders import NOW, SETTINGS, TOKENS, a_job, an_autoscaler, observed, resolved_of, whole

WITH_GATEWAY = msgspec.structs.replace(SETTINGS, gateway=GatewaySettings(enabled=True))
SLEEPER = Serve(min_replicas=0, gateway=ServeGateway(idle_seconds=60))
EARLIER = whole(NOW) - timedelta(hours=1)


def seen(*, idle: float | None = None, serve: Serve = SLEEPER, **status: Any) -> tuple[Observed, InferenceJobSpec]:
    job = a_job(serve=serve, status=InferenceJobStatus(**status))
    assert job.spec is not None
    return observed(job, idle_since=NOW - timedelta(seconds=idle) if idle is not None else None), job.spec


def test_a_service_falls_asleep_once_nobody_has_asked_for_so_long() -> None:
    for idle, since in ((59.0, None), (60.0, whole(NOW)), (None, None)):
        assert asleep_since(*seen(idle=idle), WITH_GATEWAY, NOW) == since
    assert sleeps_at(*seen(idle=59.0), WITH_GATEWAY) == NOW + timedelta(seconds=1)


def test_a_sleep_goes_on_until_a_request_ends_that_very_sleep() -> None:
    assert asleep_since(*seen(asleep_since=EARLIER), WITH_GATEWAY, NOW) == EARLIER
    stale = EARLIER - timedelta(hours=1)
    assert asleep_since(*seen(asleep_since=EARLIER, woken_from=stale), WITH_GATEWAY, NOW) == EARLIER
    assert asleep_since(*seen(asleep_since=EARLIER, woken_from=EARLIER), WITH_GATEWAY, NOW) is None


@pytest.mark.parametrize("serve", [Serve(min_replicas=0), Serve(min_replicas=0, gateway=ServeGateway(traffic_percent=1))])
def test_a_service_that_does_not_ask_for_it_never_sleeps(serve: Serve) -> None:
    assert asleep_since(*seen(idle=1e6, serve=serve, asleep_since=EARLIER), WITH_GATEWAY, NOW) is None


def test_without_the_gateway_nobody_sleeps_since_nobody_would_wake_them() -> None:
    assert asleep_since(*seen(idle=1e6, asleep_since=EARLIER), SETTINGS, NOW) is None


def test_who_sleeps_wants_no_worker_whatever_spec_replicas_says() -> None:
    for status, wanted in ((EARLIER, 0), (None, 3)):
        look, spec = seen(asleep_since=status)
        look = replace(look, job=replace(look.job, spec=replace(spec, replicas=3)))
        assert replicas(look, resolved_of(look), WITH_GATEWAY, NOW).wanted == wanted


def test_who_sleeps_has_no_hpa_which_could_only_complain() -> None:
    serve = replace(SLEEPER, max_replicas=3, latency_target_milliseconds=50)
    job = a_job(serve=serve, autoscaling=Autoscaling(mode=AutoscalingMode.HPA), status=InferenceJobStatus(asleep_since=EARLIER))
    look = observed(job, autoscalers=(an_autoscaler("own", job_uid=job.uid),))
    decided = plan(look, job_state(look, WITH_GATEWAY, NOW), None, WITH_GATEWAY, TOKENS, NOW)

    assert [type(action).__name__ for action in decided.actions] == ["DeleteAutoscaler", "WriteStatus"]
