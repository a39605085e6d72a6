"""Who answers those that name no version."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.gateway import ServeGateway
from inference_operator.gateway.snapshot import Backend, Service
from inference_operator.gateway.split import WHOLE, splits

WORKER = Backend("10.0.0.1", "a")
DEFAULT = Service("default", "m", "1", True, (WORKER,))


def another(version: str = "2", *, percent: int | None = None, mirror: int = 0, draining: bool = False) -> Service:
    backends = (replace(WORKER, draining=draining),)
    return Service("default", "m", version, False, backends, ServeGateway(traffic_percent=percent, mirror_percent=mirror))


def shares(*services: Service) -> dict[str, int]:
    (split,) = splits(services)
    return {service.version: share for service, share in split.shares}


def test_a_version_that_asks_for_nothing_gets_nothing() -> None:
    assert shares(DEFAULT, another()) == {"1": 100}


def test_the_default_version_gets_the_rest() -> None:
    assert shares(DEFAULT, another(percent=10), another("3", percent=5)) == {"1": 85, "2": 10, "3": 5}


def test_what_the_default_version_asks_for_itself_is_not_asked() -> None:
    assert shares(replace(DEFAULT, options=ServeGateway(traffic_percent=5)), another(percent=10)) == {"1": 90, "2": 10}


def test_versions_without_a_worker_that_takes_requests_get_none_and_no_copies() -> None:
    gone = replace(another("4", percent=50, mirror=50), backends=())
    (split,) = splits([DEFAULT, another(percent=10, mirror=10, draining=True), gone])

    assert split.shares == ((DEFAULT, 100),) and split.mirrors == ()


def test_models_are_split_apart() -> None:
    other = replace(DEFAULT, namespace="other")

    assert [split.shares for split in splits([DEFAULT, other])] == [((DEFAULT, 100),), ((other, 100),)]


@given(st.lists(st.integers(0, 100), max_size=6))
def test_shares_are_always_a_hundred_and_none_is_negative(asked: list[int]) -> None:
    found = shares(DEFAULT, *(another(f"v{number}", percent=percent) for number, percent in enumerate(asked)))

    assert sum(found.values()) == WHOLE and min(found.values()) >= 0
