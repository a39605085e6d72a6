"""What a job's author may write to harm whoever looks at it: nothing is obeyed by a terminal, ends the page, or fills the memory."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from typing import Any

import pytest
import yaml
from rich.console import Console

from inference_client.errors import ClientError
from inference_client.result import result_of
from kubectl_inference import draw, visible
from kubectl_inference.gather import Reader
from kubectl_inference.pages.advice import advice
from kubectl_inference.pages.parts import Fact, Line, Page, Section, Table
from kubectl_inference.pages.status import status_page
from kubectl_inference.pages.top import SortBy, top
from kubectl_inference.pages.words import instant
from kubectl_inference.snapshot import Snapshot, event_view, pod_view
from tests.unit.client.objects import NOW, a_job, at, ended_badly, succeeded

# Clears the screen, sets the title and moves up; C1's form of the same; turns a line around; a lone surrogate; ASCII that nobody sees.
OBEYED = "\x1b[2J\x1b]0;x\x07\x1b[1A\x9b31m\x85\r\x00\u202e\u2066\u2028\ud800\U000e0041\x7f"
EVIL = f"a{OBEYED}z"


def is_obeyed(text: str) -> bool:
    return not visible.is_plain(text)


@pytest.mark.parametrize("form", [visible.block, visible.line])
def test_what_a_terminal_obeys_is_shown_as_an_escape(form: Any) -> None:
    assert not is_obeyed(form(EVIL)) and form("\x1b") == "\\x1b"
    assert form("Grüße, 日本語, नर\u200dम, 👩\u200d👧") == "Grüße, 日本語, नर\u200dम, 👩\u200d👧"


def test_a_block_has_lines_and_a_line_has_none() -> None:
    assert (visible.block("a\nb\tc"), visible.line("a\nb\tc")) == ("a\nb\tc", "a\\nb\tc")


def test_a_document_has_the_same_values() -> None:
    found = {"a": EVIL, "b": ["ü", "\U0001f600"]}
    told = draw.as_json(found)

    assert json.loads(told) == found and not is_obeyed(told) and "ü" in told
    assert yaml.safe_load(draw.dump({"a": "ü\u202e"})) == {"a": "ü\u202e"} and not is_obeyed(draw.dump({"a": "ü\u202e"}))


@pytest.mark.parametrize("width", [40, 60, 160])
def test_nothing_on_a_page_is_obeyed(width: int) -> None:
    row = tuple(Line(f"{EVIL}\n{one}") for one in "abc")
    made = Page(Line(EVIL), (Section("Events", (Line(EVIL), Fact(EVIL, Line(EVIL)), Table(("A", "B", "C"), (row, row)))),))
    console = Console(width=width, force_terminal=True, color_system=None)

    with console.capture() as drawn:
        console.print(draw.page(made))
        console.print(draw.columns(Table(("A", "B", "C"), (row, row))))
        console.print(draw.note(EVIL))

    assert not is_obeyed(drawn.get()) and "\\x1b[2J" in drawn.get()


def test_a_table_has_a_line_for_each_row() -> None:
    """Else a newline in an event's reason makes rows, or on a narrow terminal ends the page."""
    rows = tuple((Line("a\nb"), Line("c\nNAME")) for _ in range(2))

    assert len(draw.columns(Table(("NAME", "NOTE"), rows)).plain.splitlines()) == 3


def test_a_headline_is_one_line() -> None:
    job = a_job(*succeeded(), spec={"model": "x\n\nCause\n  all is well"})
    console = Console(width=200)

    with console.capture() as drawn:
        console.print(draw.page(status_page(Snapshot(job, NOW))))

    assert "\\n\\nCause" in drawn.get().splitlines()[0]


def _seen(program: str) -> str:
    """What a terminal gets of a program."""
    near, far = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stdout=far, stderr=far, env={**os.environ, "TERM": "xterm"}) as ran:
        os.close(far)
        seen = b""
        try:
            while data := os.read(near, 1 << 16):
                seen += data
        except OSError:
            # The other side has ended.
            pass
        ran.wait()
    os.close(near)
    return seen.decode()


def test_lines_of_a_log_are_obeyed_by_no_terminal_and_go_to_programs_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "a\\x1b[2Jz" in _seen(r"from kubectl_inference import draw; draw.lines(['a\x1b[2Jz'])")
    draw.lines(["a\x1b[2Jz"])
    assert capsys.readouterr().out == "a\x1b[2Jz\n"


@pytest.mark.parametrize(
    "message",
    ["[" * 4000, '{"message": "\\ud800\\u001b[2J"}', '{"message": {"a": ["b"]}, "reason": ["x"]}', "9" * 4000, "null", '"x"', EVIL],
    ids=["nested", "surrogate", "types", "number", "null", "text", "obeyed"],
)
def test_any_last_words_of_a_container_make_a_page(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
    pod = pod_view(
        {
            "metadata": {"name": "p", "labels": {"inference.myorg/attempt": "1"}},
            "status": {"containerStatuses": [{"name": "worker", "state": state}]},
        }
    )

    draw.show(draw.page(status_page(Snapshot(a_job(*ended_badly("X", "y")), NOW, pods=(pod,)))))

    assert not is_obeyed(capsys.readouterr().out)


@pytest.mark.parametrize("time", ["0000-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00.000000Z"])
def test_an_event_of_any_year_makes_a_page(time: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The API server takes the year 0, which Python doesn't know."""
    event = event_view(
        {
            "metadata": {"name": "e", "creationTimestamp": None},
            "eventTime": time,
            "series": {"count": -3, "lastObservedTime": time},
            "regarding": {},
        }
    )

    draw.show(draw.page(status_page(Snapshot(a_job(*succeeded()), NOW, events=(event,)))))

    assert "Events" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2026-12-01T12:00:00+02:00", "2026-12-01T10:00:00Z"),
        ("9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59-23:59"),
        ("0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00+23:59"),
    ],
)
def test_an_instant_of_any_zone_is_told(text: str, told: str) -> None:
    job = a_job(*succeeded(), spec={"deadline": text})
    assert job.spec.deadline is not None

    assert instant(job.spec.deadline) == told
    assert status_page(Snapshot(job, NOW)).text()
    assert told in [one.text for one in top([job], NOW, by=SortBy.DEADLINE, wide=True).rows[0]]


@pytest.mark.parametrize(
    "place", ["data/$(touch /tmp/x)", "data/`id`;id", "data/x'$(id)'", "data/x\x1b[2J", "data/a|sh", "data/&&id"]
)
def test_a_command_to_paste_runs_nothing_of_its_own(place: str) -> None:
    job = a_job(*ended_badly("ModelNotFound", "gone"), spec={"model": f"pvc://{place}"})

    (command,) = [one.partition(": ")[2] for one in advice(Snapshot(job, NOW)) if "inference push" in one]
    words = shlex.split(command)

    # One word, and nothing that a shell would carry out.
    assert words[:4] == ["kubectl", "inference", "push", "FILE"] and words[5:] == ["-n", "demo"]
    assert words[4] == visible.line(place) and not is_obeyed(command)


def test_rows_of_a_result_may_hold_any_text_and_what_is_none_is_told() -> None:
    rows = '{"y": "a\u2028b\x85c"}\n{"y": 1}\n'
    assert [one["y"] for one in result_of(a_job(*succeeded(), output={"data": rows})).rows] == ["a\u2028b\x85c", 1]

    for wrong in ("no JSON", "[" * 4000):
        with pytest.raises(ClientError, match=r"inferencejob/job: .*no JSON lines"):
            result_of(a_job(*succeeded(), output={"data": wrong}))


class Endless:
    """A client of an API server whose list never ends."""

    def __init__(self) -> None:
        self.pages = 0

    def run(self, made: Any) -> Any:
        answer = None
        try:
            while True:
                made.send(answer)
                self.pages += 1
                answer = {"items": [{"metadata": {"name": at(0)}}] * 500, "metadata": {"continue": "more"}}
        except StopIteration as end:
            return end.value


def test_a_list_without_end_is_read_to_a_bound_and_said_so() -> None:
    client = Endless()
    reader = Reader(client, "demo")  # type: ignore[arg-type]  # all that it asks of a client

    assert len(reader.events("Pod", "p")) == 2000 and client.pages == 4
    assert reader.unread == ["events beyond the first 2000"]
