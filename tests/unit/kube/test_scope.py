"""Where each kind is read from, with all namespaces and with some."""

from inference_operator.controllers.handlers import WATCHED
from inference_operator.kube.scope import EVERYWHERE, Scope

TEAMS = ("team-a", "team-b")
WITHOUT_NAMESPACE = {"nodes", "persistentvolumes"}


def test_without_namespaces_one_watch_a_kind_is_enough() -> None:
    assert Scope().parted(WATCHED) == {EVERYWHERE: list(WATCHED)}


def test_with_namespaces_only_what_has_none_is_read_from_the_whole_cluster() -> None:
    parts = Scope(TEAMS).parted(WATCHED)

    assert {where: set(kinds) for where, kinds in parts.items()} == {
        EVERYWHERE: WITHOUT_NAMESPACE,
        TEAMS: set(WATCHED) - WITHOUT_NAMESPACE,
    }


def test_all_pods_can_be_read_beside_the_namespaces() -> None:
    scope = Scope(TEAMS, all_pods=True)

    assert set(scope.parted(WATCHED)[EVERYWHERE]) == {*WITHOUT_NAMESPACE, "pods"}
    assert scope.of("services") == TEAMS
