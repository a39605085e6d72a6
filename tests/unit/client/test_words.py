"""Numbers as people, and kubectl, write them."""

from datetime import timedelta

import pytest

from inference_client.api import InferenceJob
from kubectl_inference.pages.deadline import slack_in_words
from kubectl_inference.pages.parts import Tone
from kubectl_inference.pages.top import SortBy, top
from kubectl_inference.pages.words import age, duration, number, when
from tests.unit.client.objects import NOW, a_job, a_service, at


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (12.4, "12 s"), (310, "5 min 10 s"), (3600, "1 h"), (97550836, "3 y 34 d"), (86405, "1 d"), (-61, "1 min 1 s")],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "5s"),
        (119, "119s"),
        (120, "2m"),
        (310, "5m10s"),
        (3152, "52m"),
        (10_800, "3h"),
        (11_460, "3h11m"),
        (90_000, "25h"),
        (273_600, "3d4h"),
        (864_000, "10d"),
        (63_072_000 + 86_400, "2y1d"),
        (400_000_000, "12y"),
    ],
)
def test_ages_are_kubectls(seconds: float, text: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == text


def test_an_age_that_nothing_tells_is_unknown_and_none_is_negative() -> None:
    assert age(None, NOW) == "<unknown>"
    # A clock that is a little behind the server's.
    assert age(NOW + timedelta(seconds=2), NOW) == "0s"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (2.655, "2.65"), (495, "495"), (12345.6, "12346"), (0.0205, "0.0205"), (20, "20")]
)
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


def test_instants_are_told_by_their_distance() -> None:
    assert [when(NOW + timedelta(seconds=s), NOW) for s in (0, 90, -90)] == ["now", "in 1 min 30 s", "1 min 30 s ago"]


def due(seconds: float, **deadline: object) -> InferenceJob:
    end = {"completionTime": at(-5)} if deadline.pop("ended", False) else {}
    return a_job(spec={"deadline": at(seconds)}, deadline={"time": at(seconds), **deadline}, **end)


@pytest.mark.parametrize(
    ("job", "text", "tone"),
    [
        (a_job(), "none is set, so the job is never late", Tone.DIM),
        (due(60, outlook="Unknown"), "in 1 min; when the job is done can't be told yet", Tone.PLAIN),
        (
            due(60, outlook="AtRisk", slackSeconds=-5),
            "at risk: in 1 min, and the job is expected to be done 5 s after the deadline",
            Tone.WARNING,
        ),
        (due(60, outlook="Met", slackSeconds=65, ended=True), "met: the job was done 1 min 5 s before the deadline", Tone.GOOD),
        (due(-60, outlook="Missed", slackSeconds=-55, ended=True), "missed: the job was done 55 s after the deadline", Tone.BAD),
        (due(-60, outlook="Missed"), "missed: it has passed (1 min ago), and the job is not done", Tone.BAD),
        (due(60, outlook="Missed"), "missed: it can't be met (due in 1 min), and the job is not done", Tone.BAD),
        (due(60, outlook="Radiant"), "Radiant: in 1 min", Tone.PLAIN),
    ],
)
def test_slack_is_told_in_words(job: InferenceJob, text: str, tone: Tone) -> None:
    line = slack_in_words(job, NOW)

    assert (line.text, line.tone) == (text, tone)


LATENCY = {"p50": 1, "p95": 9, "p99": 10, "count": 120, "windowSeconds": 60, "observedTime": at(0)}


def test_top_shows_what_is_urgent_first_in_kubectls_form() -> None:
    calm, urgent = due(900, outlook="OnTime", slackSeconds=800), due(60, outlook="AtRisk", slackSeconds=-5)
    service = a_service(reason="Serving", readyReplicas=1, desiredReplicas=2, latency=LATENCY)

    table = top([calm, service, urgent], NOW, by=SortBy.DEADLINE, namespaces=True)
    over = top([due(-60, outlook="Missed", slackSeconds=-55, ended=True), urgent], NOW, by=SortBy.DEADLINE)
    busy = top([calm, service, urgent], NOW, by=SortBy.LOAD)

    slacks = [row[table.columns.index("SLACK")].text for row in table.rows]
    assert slacks == ["-5s", "13min20s", "<none>"]
    assert [row[over.columns.index("OUTLOOK")].text for row in over.rows] == ["AtRisk", "Missed"], "what has ended is not urgent"
    assert (table.columns[:2], table.columns[-1]) == (("NAMESPACE", "NAME"), "AGE")
    assert not any(" " in one for one in table.columns)
    assert busy.rows[0][busy.columns.index("LOAD(/S)")].text == "2" and busy.rows[0][2].text == "1/2"
