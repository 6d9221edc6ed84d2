"""Conditions as NumPy tells them, under every error state; and random streams that are NumPy's."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.runtime.execution.run_values import RunValues

Array = np.ndarray[Any, np.dtype[Any]]
CASES: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "divide": ("divide by zero encountered in divide", lambda xp, x: 1.0 / (x - x)),
    "over": ("overflow encountered in multiply", lambda xp, x: (x + 1e200) * (x + 1e200)),
    "invalid": ("invalid value encountered in sqrt", lambda xp, x: xp.sqrt(-1.0 - x)),
    "under": ("underflow encountered in multiply", lambda xp, x: (x + 1e-200) * 1e-200 * 1e-8),
}


@pytest.fixture(params=[None, 0], ids=["small", "recorded"], autouse=True)
def threshold(request: pytest.FixtureRequest) -> Iterator[None]:
    below = config.options.eager_below if request.param is None else request.param
    with config.options(eager_below=below, device="cpu"):
        yield


def array(xp: Any) -> Any:
    return xp.linspace(0.0, 1e-210, 300)


@pytest.mark.parametrize("condition", CASES)
def test_conditions_warn_with_numpys_text(condition: str) -> None:
    text, function = CASES[condition]
    for module in (np, lazyfuse):
        with (
            module.errstate(**{"all": "ignore", condition: "warn"}),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            np.asarray(function(lazyfuse, array(lazyfuse)))
        assert {str(each.message) for each in caught} == {text}
        assert {each.category for each in caught} == {RuntimeWarning}


@pytest.mark.parametrize("factor", [1.0, 1j, 1.0 + 2.0j])
@pytest.mark.parametrize("kind", ["c8", "c16"])
def test_complex_quotients_raise_nothing_of_their_own(
    kind: str, factor: complex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM computes both ways of a branch: neither may divide by the zero that the other avoids."""
    flags: list[int] = []
    note = RunValues.note_exceptions

    def noted(self: RunValues, step: Any, bits: int, *rest: Any) -> None:
        flags.append(bits)
        note(self, step, bits, *rest)

    monkeypatch.setattr(RunValues, "note_exceptions", noted)
    b = (np.linspace(1.0, 2.0, 40_000) * factor).astype(kind)
    with config.options(plan_after=0, eager_below=0, compile_after=0, compile_ahead=False):
        x = lazyfuse.array(b)
        found = np.asarray((x + 1) / x / 3 - lazyfuse.reciprocal(x))
    np.testing.assert_array_equal(found, (b + 1) / b / 3 - np.reciprocal(b), strict=True)
    assert not flags


@pytest.mark.parametrize(
    "function",
    [
        lambda np, z: (z * 2).real + 1,
        lambda np, z: (z * 2 - 1).real,
        lambda np, z: (z + z).real.sum(),
        lambda np, z: (z * 2).astype(float) - 1,
        lambda np, z: np.where((z * 2).real > 3, z.real, 2),
        lambda np, z: (z * 2).real * (z * 2).imag,
    ],
)
def test_the_part_that_is_not_read_is_told_of(function: Callable[[Any, Any], Any]) -> None:
    """The imaginary part overflows, and the program asks for the real part."""
    z = np.full(40_000, 1.0 + 1e308j)
    found: list[list[str]] = []
    with config.options(plan_after=0, eager_below=0, compile_after=0, compile_ahead=False):
        for module in (np, lazyfuse, lazyfuse, lazyfuse):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                np.asarray(function(module, module.array(z)))
            found.append(sorted(str(each.message) for each in told))
    assert found[0]
    assert found[1:] == [found[0]] * 3


def test_a_recorded_condition_is_told_at_the_users_line() -> None:
    if config.options.eager_below:
        return  # a small array is NumPy's, whose warning names the innermost Python frame
    x = lazyfuse.linspace(0.0, 1.0, 300)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = sys._getframe().f_lineno + 1
        y = 1.0 / (x - x)
        np.asarray(y)
    assert {(each.filename, each.lineno) for each in caught} == {(__file__, line)}


@pytest.mark.parametrize("condition", CASES)
def test_conditions_are_ignored_on_request(condition: str) -> None:
    _, function = CASES[condition]
    for module in (np, lazyfuse):
        with module.errstate(**{condition: "ignore"}):
            np.asarray(function(lazyfuse, array(lazyfuse)))


@pytest.mark.parametrize("condition", CASES)
def test_conditions_raise_on_request(condition: str) -> None:
    text, function = CASES[condition]
    for module in (np, lazyfuse):
        with module.errstate(**{condition: "raise"}), pytest.raises(FloatingPointError) as caught:
            np.asarray(function(lazyfuse, array(lazyfuse)))
        assert str(caught.value) == text


@pytest.mark.parametrize("condition", CASES)
def test_conditions_call_a_function(condition: str) -> None:
    _, function = CASES[condition]
    for module in (np, lazyfuse):
        heard = [told_by(module, condition, function, xp) for xp in (lazyfuse, np)]
        assert heard[0] == heard[1]
        assert heard[1]


def told_by(module: Any, condition: str, function: Any, xp: Any) -> list[Any]:
    """What a function that `errstate` of a module was given is called with."""
    heard: list[Any] = []
    states = {"all": "ignore", condition: "call", "call": lambda *told: heard.append(told)}
    with module.errstate(**states):
        np.asarray(function(xp, array(xp)))
    return heard


class Log:
    """What `errstate(call=...)` writes to for "log"."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)


@pytest.mark.parametrize("condition", CASES)
def test_conditions_are_logged_and_printed(condition: str, capfd: Any) -> None:
    text, function = CASES[condition]
    for module in (np, lazyfuse):
        log = Log()
        with module.errstate(call=log, **{condition: "log"}):
            np.asarray(function(lazyfuse, array(lazyfuse)))
        assert log.lines
        assert set(log.lines) == {f"Warning: {text}\n"}
        with module.errstate(**{condition: "print"}):
            np.asarray(function(lazyfuse, array(lazyfuse)))
        printed = capfd.readouterr()
        assert f"Warning: {text}\n" in printed.err + printed.out


def test_an_error_state_of_numpy_is_ours_and_ours_is_numpys() -> None:
    with np.errstate(divide="raise"):
        assert lazyfuse.geterr()["divide"] == "raise"
    with lazyfuse.errstate(divide="raise"):
        assert np.geterr()["divide"] == "raise"
        with pytest.raises(FloatingPointError):
            np.ones(3) / np.zeros(3)
    before = lazyfuse.seterr(over="ignore")
    try:
        assert np.geterr()["over"] == "ignore"
    finally:
        lazyfuse.seterr(**before)
    assert np.geterr() == before


def test_a_condition_of_an_operand_that_is_written_over_is_told() -> None:
    for size in (300, 60_000):
        x = lazyfuse.linspace(-1.0, 1.0, size)
        with pytest.warns(RuntimeWarning, match="invalid value encountered in log"):
            np.asarray(lazyfuse.log(x, out=x))
        with pytest.warns(RuntimeWarning, match="invalid value encountered in log"):
            np.asarray(lazyfuse.log(lazyfuse.linspace(-1.0, -0.5, size) + 0.0))


def test_an_operand_that_is_written_over_raises_no_false_condition() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1.0] * 15_000)
    for name in ("exp", "exp2", "tanh", "arctan", "cbrt", "sinh"):
        x = lazyfuse.array(values)
        getattr(lazyfuse, name)(x, out=x)
        np.testing.assert_allclose(np.asarray(x), getattr(np, name)(values), 1e-14)


# ------------------------------------------------------------------------------------- random


BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def draws(xp: Any, generator: Any) -> list[Any]:
    """Draws of all kinds, with arrays that are given and shuffled in place."""
    out = xp.empty(50)
    generator.random(out=out)
    shuffled = xp.arange(40).reshape(10, 4)
    generator.shuffle(shuffled)
    permuted = xp.zeros((10, 4), int)
    generator.permuted(xp.arange(40).reshape(10, 4), axis=1, out=permuted)
    return [
        out, shuffled, permuted, generator.permutation(xp.arange(30)), generator.permutation(9),
        generator.standard_normal(300), generator.integers(0, 1000, 300), generator.normal(1, 2),
        generator.choice(xp.arange(20.0), 7, replace=False), generator.exponential(2.0, (3, 4)),
        generator.choice(5, 9, p=xp.array([0.1, 0.2, 0.3, 0.2, 0.2])), generator.bytes(9),
        generator.multivariate_normal(xp.zeros(2), xp.eye(2), 5), generator.random(),
        generator.poisson(xp.array([1.0, 5.0, 50.0])), generator.random(40_000, dtype="f4"),
    ]  # fmt: skip


def legacy(xp: Any, state: Any) -> list[Any]:
    """The same for the older interface, a module or a RandomState."""
    shuffled = xp.arange(40).reshape(10, 4)
    state.shuffle(shuffled)
    return [
        state.rand(3, 4), state.randn(40_000), state.randint(0, 99, 30), shuffled,
        state.permutation(20), state.normal(xp.arange(4.0), 2.0), state.uniform(-1, 1, 30),
        state.choice(xp.arange(9), 4), state.standard_gamma(2.0, 9), state.random_sample(),
        state.get_state()[1],
    ]  # fmt: skip


def assert_same_draws(ours: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, bytes):
            assert one == other
            continue
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize("name", BIT_GENERATORS)
def test_streams_of_every_bit_generator_are_numpys(name: str) -> None:
    for seed in (12345, [1, 2, 3], np.random.SeedSequence(7)):
        found = []
        for xp in (lazyfuse, np):
            again = np.random.SeedSequence(7) if isinstance(seed, np.random.SeedSequence) else seed
            bits = getattr(xp.random, name)(again)
            found.append(draws(xp, xp.random.Generator(bits)))
        assert_same_draws(*found)


def test_streams_of_default_rng_and_legacy_seeding_are_numpys() -> None:
    assert_same_draws(
        draws(lazyfuse, lazyfuse.random.default_rng(3)), draws(np, np.random.default_rng(3))
    )
    seed = lazyfuse.random.RandomState(4)
    assert_same_draws(legacy(lazyfuse, seed), legacy(np, np.random.RandomState(4)))
    state = np.random.get_state()
    try:
        found = []
        for xp in (lazyfuse, np):
            xp.random.seed(11)
            found.append(legacy(xp, xp.random))
        assert_same_draws(*found)
    finally:
        np.random.set_state(state)


def test_the_generators_of_both_are_one_stream() -> None:
    """A draw by NumPy moves ours on: it is the same global state."""
    if config.options.eager_below == 0:
        return  # a process of its own has options of its own
    code = (
        "import numpy, lazyfuse\n"
        "numpy.random.seed(1); a = lazyfuse.random.rand(); b = numpy.random.rand()\n"
        "numpy.random.seed(1); assert (a, b) == (numpy.random.rand(), numpy.random.rand())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
