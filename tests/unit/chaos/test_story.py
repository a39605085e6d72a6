"""Stories are drawn from their seed alone, shrink to what fails, and are judged by what callers and readers see."""

from hypothesis import given
from hypothesis import strategies as st

from bench.autoscaling.load import Answered
from tests.chaos.story import Fault, Kind, Story, draw, shrunk
from tests.chaos.verdict import Told, gaps, lost, nearest

SEEDS = st.integers(0, 2**32)


@given(SEEDS, st.integers(0, 30), st.integers(0, 30))
def test_a_seed_tells_one_story_and_a_shorter_one_is_its_begin(seed: int, longer: int, shorter: int) -> None:
    assert draw(seed, longer)[: min(longer, shorter)] == draw(seed, shorter)[: min(longer, shorter)]


def test_every_kind_comes() -> None:
    assert {fault.kind for fault in draw(1, 200)} == set(Kind)


@given(SEEDS, st.sets(st.sampled_from(Kind), min_size=1, max_size=2))
def test_a_story_shrinks_to_the_faults_that_make_it_fail(seed: int, guilty: set[Kind]) -> None:
    story = (*draw(seed, 12), *(Fault(kind, 0.0, 0.0, 0) for kind in guilty))

    found = shrunk(story, lambda one: guilty <= {fault.kind for fault in one}, tries=500)

    assert sorted(fault.kind for fault in found) == sorted(guilty)


@given(SEEDS, st.integers(0, 5))
def test_shrinking_plays_no_more_stories_than_it_may(seed: int, tries: int) -> None:
    played: list[Story] = []

    def fails(story: Story) -> bool:
        played.append(story)
        return True

    shrunk(draw(seed, 10), fails, tries=tries)

    assert len(played) <= tries


def told(kind: Kind, begun: float, ended: float) -> Told:
    return Told(Fault(kind, 0.0, ended - begun, 0), begun, ended, "a worker")


def test_a_request_may_fail_for_a_moment_after_its_worker_has_died_and_at_no_other_time() -> None:
    death = told(Kind.WORKER_KILLED, 100.0, 100.0)
    answers = [Answered(at, 0.1, status) for at, status in ((98.0, 0), (100.5, 0), (101.0, 200), (103.0, 503))]

    assert [answer.time for answer in lost(answers, [death])] == [98.0, 103.0]
    assert nearest(answers[-1], [death]) == "3.0 s after worker killed (a worker)"
    assert nearest(answers[0], [death]) == "before the first fault"


def test_whoever_was_the_only_one_may_be_missed_until_it_is_back() -> None:
    silence = Told(Fault(Kind.NODE_SILENT, 0.0, 6.0, 0), 100.0, 106.0, "a node", alone=True)

    assert [answer.time for answer in lost([Answered(at, 0.1, 0) for at in (98.0, 105.0, 130.0)], [silence])] == [98.0, 130.0]


def test_a_death_that_kube_proxy_can_not_see_may_be_noticed_until_a_while_after_it_looks_again() -> None:
    death, blind = told(Kind.WORKER_KILLED, 130.0, 130.0), [(100.0, 155.0)]
    answers = [Answered(at, 0.1, 0) for at in (120.0, 131.0, 169.0, 171.0)]

    assert [answer.time for answer in lost(answers, [death], blind)] == [120.0, 171.0]
    assert [answer.time for answer in lost(answers, [death])] == [120.0, 169.0, 171.0]
    assert lost(answers, [told(Kind.WORKER_KILLED, 180.0, 180.0)], blind) == answers


def test_a_worker_that_was_told_to_end_may_be_missed_where_nobody_sees_its_successor() -> None:
    answers = [Answered(at, 0.1, 0) for at in (97.0, 117.0, 171.0)]

    assert [one.time for one in lost(answers, [told(Kind.POD_DELETED, 98.0, 98.0)], [(100.0, 155.0)])] == [97.0, 171.0]
    # It had its whole grace before.
    assert lost(answers, [told(Kind.POD_DELETED, 60.0, 60.0)], [(100.0, 155.0)]) == answers


def test_a_drain_a_roll_out_and_an_operators_death_excuse_nothing() -> None:
    answer = Answered(100.5, 0.1, 0)

    for kind in (Kind.NODE_DRAINED, Kind.SERVICE_ROLLED, Kind.POD_DELETED, Kind.LEADER_KILLED, Kind.LEADER_FROZEN, Kind.API_AWAY):
        assert lost([answer], [told(kind, 100.0, 101.0)]) == [answer], kind


def test_each_item_is_there_once_and_in_its_place() -> None:
    assert gaps([(0, 4), (4, 9)], 9) == ""
    assert gaps([(0, 4), (5, 9)], 9) == "items 5 to 9 stand behind 4"
    assert gaps([(0, 4), (3, 9)], 9) == "items 3 to 9 stand behind 4"
    assert gaps([(0, 4)], 9) == "4 of 9 items are answered"
