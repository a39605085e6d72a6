"""The authority's Secret: one keyring for all replicas, whoever writes first."""

from datetime import UTC, datetime, timedelta

import pytest

from inference_operator.errors import RetryableError
from inference_operator.identity.authority_secret import AuthoritySecret
from inference_operator.identity.keyring import Lifetimes
from tests.unit.autoscaling.metricsapi.kube import FakeKube

NOW = datetime(2026, 4, 2, 12, tzinfo=UTC)
DAY = timedelta(days=1)
LIFETIMES = Lifetimes(certificate=DAY, authority=7 * DAY)
PATH = "/api/v1/namespaces/ops/secrets/authority"


def secret_of(kube: FakeKube) -> AuthoritySecret:
    return AuthoritySecret(kube, namespace="ops", name="authority", lifetimes=LIFETIMES)


def chart() -> FakeKube:
    """The API with the Secret as the chart makes it."""
    kube = FakeKube()
    kube.put(PATH, {"metadata": {"name": "authority"}})
    return kube


async def test_all_replicas_have_one_keyring_through_all_its_changes() -> None:
    kube = chart()
    for days in range(30):
        now = NOW + days * DAY
        assert await secret_of(kube).current(now) == await secret_of(kube).current(now)
    assert len(kube.did("replace")) >= 5


async def test_an_empty_secret_of_the_chart_is_filled() -> None:
    kube = FakeKube()
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    kube.put(PATH, {"metadata": {"name": "authority", "labels": labels}})
    ring = await secret_of(kube).current(NOW)

    assert kube.did("replace") == [PATH]
    assert kube.objects[PATH]["metadata"]["labels"] == labels
    assert await secret_of(kube).current(NOW) == ring


async def test_of_two_that_write_at_the_same_time_both_use_the_first() -> None:
    kube, other = chart(), chart()
    first = await secret_of(other).current(NOW)

    def quicker() -> None:
        kube.put(PATH, other.objects[PATH])

    kube.before[f"replace {PATH}"] = quicker

    assert await secret_of(kube).current(NOW) == first


async def test_a_secret_that_was_deleted_is_missed_by_name_and_not_created() -> None:
    """The operator's account may create none: what the API server says of that told nobody what to do."""
    kube = FakeKube()

    with pytest.raises(RetryableError, match="there is no Secret authority; an upgrade of the release makes it"):
        await secret_of(kube).current(NOW)
    assert kube.did("create", "replace") == []


@pytest.mark.parametrize("data", [{"tls.crt": "!"}, {"tls.crt": "anVuaw==", "tls.key": "anVuaw=="}, {"tls.key": "anVuaw=="}])
async def test_a_damaged_one_is_never_overwritten(data: dict[str, str]) -> None:
    """A new key in its place would cut all workers off at once."""
    kube = FakeKube()
    kube.put(PATH, {"metadata": {"name": "authority"}, "data": data})

    with pytest.raises(RetryableError, match="damaged"):
        await secret_of(kube).current(NOW)
    assert kube.did("create", "replace") == []
