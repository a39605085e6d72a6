"""The collector is held back for a while, whatever happens, and then as it was."""

import gc

import pytest

from inference_operator.runtime.collector import paused


def test_it_is_held_back_and_let_go() -> None:
    with paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_let_go_after_an_error_too() -> None:
    with pytest.raises(ValueError, match="in the pass"), paused():
        raise ValueError("in the pass")
    assert gc.isenabled()


def test_who_has_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
