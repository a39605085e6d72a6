"""Label selectors: apimachinery's grammar, with its meaning of absent keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.autoscaling.selectors import LabelSelectorRequirement, Selector, SelectorError, parse_selector

LABELS = {"app": "web", "tier": "front", "size": "10", "empty": "", "a.io/b": "c"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "app=web",
        "app==web",
        " app = web ",
        "app!=db",
        "absent!=web",
        "app in (web,db)",
        "app in ( web , db )",
        "app notin (db)",
        "absent notin (web)",
        "app",
        "!absent",
        "! absent",
        "size>9",
        "size<11",
        "empty=",
        "empty in (,x)",
        "a.io/b=c",
        "app=web,tier in (front,back),!absent,size>1",
        "app in (web),tier=front",
    ],
)
def test_what_matches(text: str) -> None:
    assert parse_selector(text).matches(LABELS)


@pytest.mark.parametrize(
    "text",
    [
        "app=db",
        "app!=web",
        "app in (db)",
        "app notin (web,db)",
        "absent",
        "!app",
        "size>10",
        "size<10",
        "app>1",
        "absent<1",
        "app=web,tier=back",
    ],
)
def test_what_does_not_match(text: str) -> None:
    assert not parse_selector(text).matches(LABELS)


@pytest.mark.parametrize(
    "text",
    [
        "=",
        "a=b,",
        ",a",
        "a in",
        "a in b",
        "a in (b",
        "a in b)",
        "a b",
        "a=b=c",
        "a!",
        "!",
        "a>b",
        "a in (b c)",
        "-a",
        "a=-b",
        "a=b;c",
        "x" * 5000,
        "a/b/c",
    ],
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_selector(text)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_selector(text).matches(LABELS)
    except SelectorError:
        pass


_WORDS = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)


@given(st.lists(st.tuples(_WORDS, st.sampled_from(["In", "NotIn"]), st.lists(_WORDS, min_size=1, max_size=3)), max_size=4))
def test_what_is_written_is_read_back(parts: list[tuple[str, str, list[str]]]) -> None:
    words = {"In": "in", "NotIn": "notin"}
    text = ",".join(f"{key} {words[operator]} ({','.join(values)})" for key, operator, values in parts)

    assert parse_selector(text) == Selector(tuple(LabelSelectorRequirement(k, o, tuple(v)) for k, o, v in parts))


def test_the_document_says_what_the_text_said() -> None:
    assert parse_selector("").document() is None
    assert parse_selector("a=b,!c,d>1").document() == {
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}, {"key": "c", "operator": "DoesNotExist"}]
    }
