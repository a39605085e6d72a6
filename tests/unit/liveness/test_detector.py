"""What evidence makes a suspicion, and what takes it back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.liveness.detector import LIMITS, Cause, Evidence, NodeEvidence, Verdict, cut_off, weigh

ALONE = NodeEvidence(1, 1)
LIVELY = NodeEvidence(2, 1)
TRUSTED = Verdict()


def suspect(evidence: Evidence, node: NodeEvidence = LIVELY) -> Cause | None:
    return weigh(TRUSTED, evidence, node, 10.0).cause


def test_lost_packets_alone_are_nothing() -> None:
    # TCP repeats a packet after 0.2 s, and what is lost again after 0.4 s more.
    assert suspect(Evidence(silent=0.25)) is None
    assert suspect(Evidence(silent=0.65)) is None
    assert suspect(Evidence(silent=0.25), NodeEvidence(2, 2)) is None
    assert suspect(Evidence(refusals=1)) is None


def test_a_worker_that_is_silent_or_refuses_is_suspected() -> None:
    assert suspect(Evidence(silent=0.7)) is Cause.SILENT
    assert suspect(Evidence(refusals=2)) is Cause.REFUSING


def test_a_node_whose_workers_are_all_silent_is_suspected_sooner() -> None:
    assert suspect(Evidence(silent=0.5), NodeEvidence(2, 2)) is Cause.NODE_SILENT
    assert suspect(Evidence(silent=0.5), NodeEvidence(2, 1)) is None
    assert suspect(Evidence(silent=0.5), ALONE) is None


def test_what_the_control_plane_doubts_is_suspected_soonest_and_never_without_silence() -> None:
    doubted = NodeEvidence(1, 1, doubted=True)

    assert suspect(Evidence(silent=0.35), doubted) is Cause.SILENT
    assert suspect(Evidence(), doubted) is None


def test_a_worker_that_speaks_again_is_trusted_after_two_answers_and_later_each_time() -> None:
    verdict, needed = TRUSTED, []
    for _ in range(4):
        verdict = weigh(verdict, Evidence(silent=0.7), LIVELY, 1.0)
        needed.append(next(n for n in range(100) if not weigh(verdict, Evidence(answers=n), LIVELY, 1.0).suspected))
        verdict = weigh(verdict, Evidence(answers=needed[-1]), LIVELY, 1.0)

    assert needed == [2, 4, 8, 16]
    assert weigh(verdict, Evidence(silent=0.7), LIVELY, 1.0 + LIMITS.calm_seconds).times == 1


def test_most_nodes_silent_at_once_is_the_operators_own_fault() -> None:
    silent, heard = NodeEvidence(3, 3), NodeEvidence(3, 0)

    assert cut_off({"a": silent, "b": silent, "c": heard})
    assert not cut_off({"a": silent, "b": heard, "c": heard})
    assert not cut_off({"a": silent, "b": heard})
    assert not cut_off({"a": NodeEvidence(3, 3, doubted=True), "b": silent, "c": heard})


@given(
    st.lists(
        st.builds(Evidence, silent=st.floats(0, 2), refusals=st.integers(0, 3), answers=st.integers(0, 8)), min_size=1, max_size=240
    )
)
def test_flapping_is_bounded_whatever_the_polls_find(found: list[Evidence]) -> None:
    """A minute of polls every 250 ms: each return asks for twice as many answers as the one before."""
    verdict, returns, answers = TRUSTED, 0, 0
    for number, evidence in enumerate(found):
        answers = answers + 1 if evidence.silent < LIMITS.node_seconds and not evidence.refusals else 0
        before, seen = verdict, Evidence(evidence.silent, evidence.refusals, answers)
        verdict = weigh(before, seen, LIVELY, number / 4)
        if verdict.suspected and not before.suspected:
            answers = 0
        returns += before.suspected and not verdict.suspected

    assert returns <= 6


@given(st.builds(Evidence, silent=st.floats(0, 2), refusals=st.integers(0, 3), answers=st.integers(0, 70)), st.integers(0, 9))
def test_the_same_evidence_weighs_the_same(evidence: Evidence, times: int) -> None:
    before = Verdict(None, times, 1.0)

    assert weigh(before, evidence, LIVELY, 2.0) == weigh(before, evidence, LIVELY, 2.0)
    if evidence.silent < LIMITS.doubted_seconds and evidence.refusals < LIMITS.refusals:
        assert weigh(before, evidence, NodeEvidence(1, 1, doubted=True), 2.0) == before
