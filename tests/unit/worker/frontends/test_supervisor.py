"""When a frontend is given up."""

from inference_worker.frontends.supervisor import is_silent


def test_a_frontend_that_starts_slowly_is_given_the_time() -> None:
    """On a node whose CPUs others use, it was replaced by one that was as slow, and so on: nobody took the callers."""
    assert not is_silent(now=130.0, begun=100.0, alive_at=None)
    assert is_silent(now=161.0, begun=100.0, alive_at=None)
    assert is_silent(now=130.0, begun=100.0, alive_at=119.0)
