"""A name has one type and one owner, and labels that collide with nobody's."""

from __future__ import annotations

import re
from pathlib import Path

_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)
_PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"
# Labels that Prometheus, or what scrapes for it, gives to targets. `namespace` is ours too, and needs honorLabels.
_OF_TARGETS = {"job", "instance", "pod", "container", "endpoint", "service", "node"}


def rows() -> list[tuple[str, str, set[str]]]:
    return [(name, kind, set(labels.split(", ")) - {""}) for name, kind, labels in _ROW.findall(_PAGE.read_text())]


def test_no_name_stands_twice() -> None:
    names = [name for name, *_ in rows()]

    assert sorted(names) == sorted(set(names)) and len(names) > 80


def test_no_label_is_one_of_the_targets() -> None:
    assert {name: labels & _OF_TARGETS for name, _, labels in rows() if labels & _OF_TARGETS} == {}


def test_no_label_has_unbounded_values() -> None:
    bounded = {"accelerator", "cause", "code", "inference_job", "kind", "method", "model", "namespace", "outcome", "outlook"}
    bounded |= {"percentile", "phase", "reason", "result", "source", "state", "tenant", "version", "python_version"}
    of_devices = {"uuid", "name", "driver", "compute_capability"}

    assert {label for *_, labels in rows() for label in labels} - bounded - of_devices == set()


def test_only_the_name_of_the_mission_is_in_another_unit_than_seconds() -> None:
    assert [name for name, *_ in rows() if re.search(r"_(ms|us|minutes|milliseconds)(_|$)", name)] == ["inference_latency_ms"]


def test_names_are_prometheus_own_form_and_counters_alone_are_totals() -> None:
    kinds = {name: kind for name, kind, _ in rows()}

    assert [name for name in kinds if not re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", name)] == []
    assert [name for name, kind in kinds.items() if name.endswith("_total") != (kind == "counter")] == []
