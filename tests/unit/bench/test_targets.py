"""Targets: what was measured is judged, what was not has none, and a void run is nobody's."""

from typing import Any

from bench.plane.targets import judge


def a_burst(side: str, rate: float, *, limits: str = "shipped", void: bool = False) -> dict[str, Any]:
    figures = {"jobsPerSecond": rate, "ownCpuMsPerJob": 10.0, "writesPerJob": 5.0}
    return {"scenario": "burst", "side": side, "limits": limits, "void": void, **figures}


def a_deadline_run(side: str, on_time: float) -> dict[str, Any]:
    return {"scenario": "deadlines", "side": side, "onTime": on_time, "simulated": 0.8, "simulatedAsHere": 0.78, "void": False}


def verdicts(*records: dict[str, Any]) -> dict[str, bool]:
    return {target.id: target.holds for target in judge(records)}


def test_the_rate_is_judged_by_medians() -> None:
    records = [a_burst("ours", rate) for rate in (10, 60, 90)] + [a_burst("job", rate) for rate in (2, 3, 4)]

    assert verdicts(*records) == {"burst.shipped.rate": True, "burst.shipped.aim": False}


def test_void_runs_are_left_out() -> None:
    assert verdicts(a_burst("ours", 60), a_burst("job", 3, void=True)) == {}


def test_a_failed_scenario_has_no_targets() -> None:
    assert verdicts({"scenario": "kills", "failed": "DevError: the operator ended"}) == {}


def test_deadlines_are_held_against_simulation_and_the_better_form_of_kueue() -> None:
    ours, theirs, stays = a_deadline_run("ours", 0.79), a_deadline_run("kueue", 0.4), a_deadline_run("kueue-stays", 0.7)

    assert verdicts(ours, theirs, stays) == {
        "deadlines.simulation": True,
        "deadlines.simulation-as-here": True,
        "deadlines.kueue": False,
    }
    assert not verdicts(a_deadline_run("ours", 0.77))["deadlines.simulation"]


def test_poison_is_a_ratio_of_our_own_times() -> None:
    def drained(seconds: float, *, poisoned: bool) -> dict[str, Any]:
        return {
            "scenario": "poison",
            "side": "ours",
            "limits": "lifted",
            "poisoned": poisoned,
            "drainSeconds": seconds,
            "void": False,
        }

    assert verdicts(drained(20, poisoned=False), drained(21, poisoned=True)) == {"poison.lifted": True}
    assert verdicts(drained(20, poisoned=False), drained(23, poisoned=True)) == {"poison.lifted": False}


def test_one_leaked_pod_misses_its_target_even_in_a_run_with_late_kubelets() -> None:
    clean = {"leakedPods": 0, "leakedMilliCpu": 0, "doubled": 0, "lost": 0, "attemptsWithoutCause": 0}
    record = {"scenario": "kills", "void": True, **clean, "preemptionsOfOneJobAtMost": 3}

    assert all(verdicts(record).values())
    assert verdicts({**record, "leakedPods": 1})["kills.leakedPods"] is False
    assert verdicts({**record, "preemptionsOfOneJobAtMost": 4})["kills.preemptions"] is False
