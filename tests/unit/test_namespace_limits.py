"""Limits of namespaces in the settings file: each is taken as it is meant, or refused with its place and the cure."""

from pathlib import Path

import pytest

from inference_operator.namespace_limits import Limits
from inference_operator.settings import ConfigurationError, Settings, load_settings


def loaded(folder: Path, limits: str) -> Settings:
    file = folder / "config.yaml"
    file.write_text(f"namespaceLimits: {limits}")
    return load_settings(file)


def test_without_a_setting_no_namespace_has_a_cap_and_all_weigh_the_same() -> None:
    limits = Settings().namespace_limits

    assert limits.of("anybody") == Limits(
        max_priority=1000, max_devices={}, max_replicas=None, max_preemptions_per_hour=None, weight=1
    )
    assert not limits.caps_workers


def test_a_namespace_has_its_own_limits_or_the_default(tmp_path: Path) -> None:
    limits = loaded(tmp_path, "{default: {maxPriority: 100}, overrides: {research: {maxPriority: 500}}}").namespace_limits

    assert (limits.of("research").max_priority, limits.of("anybody").max_priority) == (500, 100)


def test_what_an_override_leaves_out_is_the_defaults_and_not_unlimited(tmp_path: Path) -> None:
    text = "{default: {maxReplicas: 9, maxDevices: {gpu: 2}}, overrides: {research: {weight: 3}}}"
    research = loaded(tmp_path, text).namespace_limits.of("research")

    assert (research.max_replicas, research.max_devices, research.weight) == (9, {"gpu": 2}, 3)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ("{default: {maxPriority: 1001}}", r"namespaceLimits\.default\.maxPriority is 1001; jobs have priorities from 0 to 1000"),
        ("{default: {maxPriority: -1}}", r"namespaceLimits\.default\.maxPriority is -1"),
        ("{overrides: {a: {maxDevices: {tpu: 1}}}}", r"namespaceLimits\.overrides\.a\.maxDevices\.tpu: .* choose among cpu, gpu"),
        ("{default: {maxDevices: {gpu: -1}}}", r"namespaceLimits\.default\.maxDevices\.gpu is -1; .* 0 or more"),
        ("{default: {maxReplicas: -1}}", r"namespaceLimits\.default\.maxReplicas is -1; .* leave it out for no cap"),
        ("{default: {maxPreemptionsPerHour: -2}}", r"namespaceLimits\.default\.maxPreemptionsPerHour is -2"),
        ("{default: {weight: 0}}", r"namespaceLimits\.default\.weight is 0; write a number above 0"),
        ("{default: {weight: .nan}}", r"namespaceLimits\.default\.weight is nan"),
        ("{overrides: {'team-*': {weight: 2}}}", r"namespaceLimits\.overrides\.team-\*: no namespace can have this name"),
        ("{overrides: {a: {maxGpus: 2}}}", r"unknown field `maxGpus` - at `\$\.namespaceLimits\.overrides\[\.\.\.\]`"),
        ("{overrides: {a: 3}}", r"Expected `object`, got `int`"),
        ("{overrides: 3}", r"Expected `object`, got `int`"),
        ("{default: 3, overrides: {a: {}}}", r"Expected `object`, got `int`"),
        ("3", r"Expected `object`, got `int`"),
    ],
)
def test_a_limit_that_can_not_be_used_is_refused_with_its_place(tmp_path: Path, limits: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        loaded(tmp_path, limits)
