"""NumPy's own `errstate` around recorded work: conditions are handled where NumPy handles them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.arrays import recording

N = 400
RNG = np.random.default_rng(1)
NORMAL = RNG.normal(size=N)
ZEROS = np.where(RNG.random(N) < 0.1, 0.0, 1.0)
DATA = {
    "a": NORMAL,
    "z": ZEROS,
    "big": np.full(N, 1e308),
    "nan": np.where(ZEROS, 1.0, np.nan),
    "i": RNG.integers(0, 5, N),
    "tiny": np.full(N, 1e-300),
    "c": np.full(N, 1e200 + 1j),
}


def _in_place(x: Any, y: Any) -> Any:
    x /= y
    return x


def _stored(x: Any, key: Any, y: Any) -> Any:
    x[key] = y
    return x


Given = Callable[[Any, dict[str, Any]], Any]
CALLS: dict[str, Given] = {
    "divide": lambda xp, d: d["a"] / d["z"],
    "divide in place": lambda xp, d: _in_place(d["a"], d["z"]),
    "divide a part": lambda xp, d: _in_place(d["a"][5:-5], d["z"][5:-5]),
    "divide into": lambda xp, d: xp.divide(d["a"], d["z"], out=d["a"]),
    "reciprocal": lambda xp, d: 1.0 / d["z"],
    "parts": lambda xp, d: d["a"][10:-10] / d["z"][10:-10],
    "multiply": lambda xp, d: d["big"] * 10.0,
    "square": lambda xp, d: d["big"] ** 2,
    "sqrt": lambda xp, d: xp.sqrt(d["a"]),
    "log": lambda xp, d: xp.log(d["z"]),
    "sum": lambda xp, d: d["big"].sum(),
    "mean": lambda xp, d: d["big"].mean(),
    "std along": lambda xp, d: d["big"].reshape(20, -1).std(0),
    "reduce": lambda xp, d: xp.add.reduce(d["big"]),
    "cumsum": lambda xp, d: xp.cumsum(d["big"]),
    "integers": lambda xp, d: d["i"] // d["i"],
    "remainder": lambda xp, d: d["i"] % d["i"],
    "underflow": lambda xp, d: d["tiny"] * 1e-300,
    "cast": lambda xp, d: d["nan"].astype("i8"),
    "cast into": lambda xp, d: _stored(d["i"], ..., d["nan"]),
    "cast into a part": lambda xp, d: _stored(d["i"], slice(2, 9), d["nan"][2:9]),
    "where": lambda xp, d: xp.where(d["z"] > 0, d["a"] / d["z"], 0),
    "selection": lambda xp, d: d["big"][d["a"] > 0].sum(),
    "chain": lambda xp, d: ((d["a"] + 1) / d["z"] * 2).sum(),
    "complex": lambda xp, d: d["c"] * d["c"],
    "number": lambda xp, d: d["big"].max() * 10.0,
    "nothing to tell": lambda xp, d: d["a"] + d["z"],
    "nothing to tell of a cast": lambda xp, d: d["i"].astype("f8") + 1,
}


@pytest.fixture(autouse=True)
def recorded() -> Iterator[None]:
    with config.options(eager_below=0):
        yield


def _outcome(xp: Any, call: Given, **state: str) -> tuple[str, list[str], list[str]]:
    """What a call raises inside the error state, hands to its handler and warns of."""
    given = {name: xp.array(value) * 1 for name, value in DATA.items()}
    heard: list[str] = []
    raised = ""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            handler: Any = lambda text, bits: heard.append(f"{text} {bits}")
            with np.errstate(**state, call=handler):  # type: ignore[arg-type]
                result = call(xp, given)
        except FloatingPointError as error:
            raised = str(error)
        else:
            np.asarray(result)
    return raised, sorted(set(heard)), sorted({str(each.message) for each in told})


@pytest.mark.parametrize("call", CALLS)
def test_conditions_are_handled_as_in_numpy_D2(call: str) -> None:
    ways: list[dict[str, str]] = [
        {"all": "raise"}, {"over": "raise", "invalid": "raise"}, {"all": "call"}, {"all": "ignore"},
    ]  # fmt: skip
    for state in ways:
        expected = _outcome(np, CALLS[call], **state)
        for _ in range(2):
            assert _outcome(lf, CALLS[call], **state) == expected, state


def test_what_was_recorded_before_is_told_as_there_D2() -> None:
    x = (lf.array(NORMAL) * 1.0) / (lf.array(ZEROS) * 1.0)
    with np.errstate(all="raise"), pytest.warns(RuntimeWarning, match="divide by zero"):
        np.asarray(x)


def test_a_frozen_program_runs_in_the_state_of_its_call_D2() -> None:
    quotient = lf.freeze(lambda x, y: x / y, x=NORMAL, y=ZEROS)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        np.asarray(quotient(x=NORMAL, y=ZEROS))
    with np.errstate(all="raise"), pytest.raises(FloatingPointError, match="divide by zero"):
        np.asarray(quotient(x=NORMAL, y=ZEROS))


def test_a_state_that_was_set_back_is_the_default_again_D2() -> None:
    before = np.seterr(divide="ignore")
    assert not recording.errstate.is_default()
    np.seterr(**before)
    assert recording.errstate.is_default()
