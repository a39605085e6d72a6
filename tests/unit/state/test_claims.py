"""Claims as the API server has them: who may mount one at a time, and whether it waits for an ended pod to go."""

import pytest

from inference_operator.state.objects import Key
from inference_operator.state.parse import parse_claim
from inference_operator.state.parse_pods import parse_pod
from inference_operator.state.volumes import Access, Claim, Claims
from tests.unit.state.raw import Raw, container, meta, raw_pod

ONCE, POD, MANY, READ = "ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany", "ReadOnlyMany"
DATA = Key("team", "data")


def raw_claim(asked: list[str], has: list[str] | None = None, **metadata: object) -> Raw:
    return {"metadata": meta("data", **metadata), "spec": {"accessModes": asked}, "status": {"accessModes": has} if has else {}}


@pytest.mark.parametrize(
    ("asked", "has", "reads", "writes"),
    [
        ([ONCE], [ONCE], Access.ONE_NODE, Access.ONE_NODE),
        ([ONCE], None, Access.ONE_NODE, Access.ONE_NODE),
        ([POD], [POD], Access.ONE_POD, Access.ONE_POD),
        ([POD], [ONCE, POD, MANY], Access.ONE_POD, Access.ONE_POD),
        ([MANY], [MANY], None, None),
        ([ONCE], [ONCE, MANY], None, None),
        ([READ], [READ], None, Access.ONE_NODE),
        ([ONCE, READ], [ONCE, READ], None, Access.ONE_NODE),
        ([], None, None, None),
    ],
)
def test_who_may_mount_a_claim_at_a_time(
    asked: list[str], has: list[str] | None, reads: Access | None, writes: Access | None
) -> None:
    claim = parse_claim(raw_claim(asked, has))

    assert (claim.access(writes=False), claim.access(writes=True)) == (reads, writes)


def test_a_claim_that_its_user_has_deleted_waits_for_the_pods_that_name_it() -> None:
    assert parse_claim(raw_claim([ONCE], deletionTimestamp="2026-04-02T12:00:00Z")).deleting
    assert not parse_claim(raw_claim([ONCE])).deleting


def test_a_claim_without_spec_and_status_is_read() -> None:
    assert parse_claim({"metadata": meta("data")}) == Claim("uid-of-data", "7", (), deleting=False)


def test_a_pod_is_known_by_the_claims_that_it_mounts() -> None:
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]

    assert parse_pod(raw_pod(container(), spec={"volumes": volumes})).claims == ("data",)


def test_a_view_that_was_handed_out_stays_as_it_was() -> None:
    claims = Claims()
    claim = Claim("u", "1", (ONCE,), deleting=False)
    assert claims.put(DATA, claim)
    before = claims.of("team")

    assert claims.put(DATA, None)
    assert (before, claims.of("team"), claims.of("other")) == ({"data": claim}, {}, {})


def test_a_claim_that_says_the_same_is_no_news() -> None:
    claims = Claims()
    claims.put(DATA, Claim("u", "1", (ONCE,), deleting=False))

    assert not claims.put(DATA, Claim("u", "2", (ONCE,), deleting=False))
    assert claims.put(DATA, Claim("u", "3", (ONCE,), deleting=True))
