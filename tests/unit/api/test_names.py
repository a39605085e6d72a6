"""Names of what the operator makes: valid in every length, and different for different jobs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api import names

LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
DNS_1123_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
DNS_1035_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

_segment = st.from_regex(DNS_1123_LABEL, fullmatch=True).filter(lambda s: len(s) <= 63)
job_names = st.lists(_segment, min_size=1, max_size=8).map(".".join).filter(lambda s: len(s) <= 253)
uids = st.uuids().map(str)
numbers = st.integers(1, 10**6)

AT_THE_LIMITS = [
    *("a", "0", "a.b", "1.2.3", "a" * 63, "a" * 64, "0" * 253, ".".join(["a" * 63] * 3 + ["a" * 61])),
    *("x" * 53 + ".y", "x" * 54 + "-y", "a." * 126 + "a", "a-" * 126 + "a", "a" + "-" * 251 + "b"),
]


def is_label_value(text: str) -> bool:
    return len(text) <= 63 and LABEL_VALUE.fullmatch(text) is not None


def is_dns_label(text: str, form: re.Pattern[str] = DNS_1123_LABEL) -> bool:
    return len(text) <= 63 and form.fullmatch(text) is not None


@pytest.mark.parametrize("name", AT_THE_LIMITS)
def test_names_at_the_limits_make_valid_children(name: str) -> None:
    assert is_label_value(names.label_value(name))
    assert is_dns_label(names.pod_name(name, "u", 1))
    assert is_dns_label(names.pod_name(name, "u", 10**9))
    assert is_dns_label(names.service_name(name), DNS_1035_LABEL)


@given(job_names, uids, numbers)
def test_every_job_name_makes_valid_children(name: str, uid: str, number: int) -> None:
    assert is_label_value(names.label_value(name))
    assert is_dns_label(names.pod_name(name, uid, number))
    assert is_dns_label(names.service_name(name), DNS_1035_LABEL)


@given(job_names, uids, uids, numbers)
def test_jobs_of_one_name_in_turn_have_different_pods(name: str, uid: str, other: str, number: int) -> None:
    assert (names.pod_name(name, uid, number) == names.pod_name(name, other, number)) == (uid == other)


@given(job_names, uids, numbers, numbers)
def test_attempts_have_different_pods(name: str, uid: str, number: int, other: int) -> None:
    assert (names.pod_name(name, uid, number) == names.pod_name(name, uid, other)) == (number == other)


@given(job_names, job_names)
def test_jobs_have_different_services_and_labels(name: str, other: str) -> None:
    assert (names.service_name(name) == names.service_name(other)) == (name == other)
    assert (names.label_value(name) == names.label_value(other)) == (name == other)


def test_a_name_that_fits_stays_itself() -> None:
    assert names.service_name("lane-detection-001") == "lane-detection-001"
    assert names.label_value("lane.detection-001") == "lane.detection-001"


def test_long_names_that_differ_at_the_end_have_different_services() -> None:
    assert names.service_name("a" * 100 + "1") != names.service_name("a" * 100 + "2")


def test_ten_thousand_jobs_of_a_sweep_with_long_names_have_different_pods() -> None:
    head = "experiment-with-a-name-that-says-all-about-its-parameters"

    pods = {names.pod_name(f"{head}-{i:05}", f"00000000-0000-4000-8000-{i:012x}", 1) for i in range(10_000)}

    assert len(pods) == 10_000


def test_a_service_whose_name_begins_with_a_letter_keeps_it() -> None:
    assert names.service_name("a1." + "b" * 60).startswith("a1-b")
    assert names.service_name("1a." + "b" * 60).startswith("j-1a-b")
