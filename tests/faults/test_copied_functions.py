"""Copies of functions of NumPy's and of users': an interrupt while one is made leaves no half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse.functions import decompositions
from lazyfuse.namespace import rebind

SCALE = 3.0
POWER = numpy.float64(2)


class Interrupt(BaseException):
    """What Ctrl-C raises."""


def interrupted_at(monkeypatch: pytest.MonkeyPatch, home: Any, name: str, call: int) -> None:
    """The function of that name is interrupted when it is called for the `call`-th time."""
    real: Callable[..., Any] = getattr(home, name)
    calls = 0

    def interrupted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Interrupt
        return real(*args)

    monkeypatch.setattr(home, name, interrupted)


@pytest.mark.parametrize("call", [1, 2, 5])
def test_numpys_functions_are_copied_whole(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    function = numpy.nanvar.__wrapped__  # type: ignore[attr-defined]
    monkeypatch.setattr(decompositions, "_rebound", {})
    with monkeypatch.context() as patch:
        interrupted_at(patch, decompositions, "_translate", call)
        with pytest.raises(Interrupt):
            decompositions.rebind(function)
    assert decompositions._rebound == {}
    values = numpy.arange(40_000.0)
    values[::7] = numpy.nan
    found = decompositions.rebind(function)(lazyfuse.array(values))
    assert numpy.allclose(found, numpy.nanvar(values))


def _inner(x: Any) -> Any:
    return numpy.sqrt(x) * SCALE


def _outer(x: Any, power: Any = POWER) -> Any:
    return _inner(x) ** power


@pytest.mark.parametrize("call", [1, 2, 3])
def test_users_functions_are_copied_whole(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    twins = rebind.ReboundFunctions(_unrelated)  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        interrupted_at(patch, rebind, "_exchange", call)
        with pytest.raises(Interrupt):
            twins.translate(_outer)
    x = lazyfuse.array(numpy.arange(40_000.0))
    found = twins.translate(_outer)(x)
    twins.refresh()
    assert isinstance(found, lazyfuse.ndarray)
    assert numpy.allclose(found, numpy.arange(40_000.0) * 9)


def _unrelated() -> None:
    """A function that reaches no other."""
