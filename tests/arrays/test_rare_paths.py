"""What programs seldom ask for: ways in which only campaigns had been before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.arrays import mask_selection
from lazyfuse.codegen.plan import chains
from lazyfuse.devices import cpu_figures
from lazyfuse.runtime.capture import capture

N = 60_000
Program = Callable[[Any, Any], Any]


def numbers(seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).uniform(0.5, 2, N)


def swapped(xp: Any, x: Any) -> Any:
    x = x.copy()
    same = x.byteswap(inplace=True)
    assert same is x
    return x.view("u8")


def shared_condition(xp: Any, x: Any) -> Any:
    """Selections of bools: whether all, whether any, the least and the largest one."""
    chosen, mask = x > 0.9, x > 0.7
    found = chosen[mask]
    return [found.min(), chosen[mask].max(), found.all(), found.any(), chosen[mask].sum()]


PROGRAMS: dict[str, Program] = {
    "bytes swapped in place": swapped,
    "nested lists times a matrix": lambda xp, x: [[1.0, 2.0], [3.0, 4.0]] @ x.reshape(2, -1),
    "selected bools": shared_condition,
    "roots of what is selected": lambda xp, x: (
        xp.sqrt(x[x > 1]).sum() + xp.negative(x[x > 1]).max()
    ),
    "selections squared": lambda xp, x: (x[x > 1] ** 2).sum() + (x[x > 1] ** 0.5).sum(),
    "selections over numbers": lambda xp, x: [(x[x > 1] / d).sum() for d in (3.0, 2, 1e-300)],
    "running sums of integers": lambda xp, x: [
        xp.cumsum((x * 9).astype(kind), axis=axis) for kind in ("i8", "u8") for axis in (None, 0)
    ],
    "a slice of what is pending": lambda xp, x: [(x + 1)[10:20], (x + 1)[5:] * 2],
    "quotients and rests": lambda xp, x: [*xp.divmod(x, 0.25), *divmod(x, xp.roll(x, 1))],
    "rests of selections": lambda xp, x: [*divmod(x[x > 1], 0.25), *xp.divmod(x[x > 1], 2)],
    "a selection written": lambda xp, x: _selection_written(x),
    "a selection beside an array": lambda xp, x: xp.concatenate([x[x > 1], x]) + 1,
    "a selection in many ways": lambda xp, x: [
        xp.exp(x[x > 1]),
        x[x > 1].astype("f4"),
        xp.where(x[x > 1] > 1.2, x[x > 1], 0.0),
        xp.cumsum(x[x > 1]),
        xp.sort(x[x > 1])[::-1] * 2,
        xp.stack([x[x > 1], x[x > 1]]),
    ],
    "a number into a selection": lambda xp, x: _number_written(x),
    "positions among few edges": lambda xp, x: [
        xp.digitize([0.6, 1.5], [0.5, 1.0]),
        xp.digitize(x[:3], [0.5, 1.0]),
    ],
    "a slice written twice": lambda xp, x: _written_twice(x),
}


def _selection_written(x: Any) -> Any:
    y = x[x > 1]
    y[2:5] = 0.0
    return y


def _number_written(x: Any) -> Any:
    y = x[x > 1]
    y[3] = 7.0
    return y


def _written_twice(x: Any) -> Any:
    y = x + 0
    part = y[10:20000]
    y[5:15000] = 3.0
    part[:7] = -1.0
    y[0] = float(part[3])
    return y


def same(found: Any, wanted: Any) -> None:
    """Equal results, or lists of them."""
    ours, theirs = (each if type(each) is list else [each] for each in (found, wanted))
    for mine, other in zip(map(np.asarray, ours), map(np.asarray, theirs), strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(mine, other, rtol=1e-13)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask_selection, "WORTH", 0)
    program = PROGRAMS[name]
    wanted, found = program(np, numbers()), program(lf, lf.array(numbers()))
    same(found, wanted)


# A type of a module that knows NumPy and not us: its method gets NumPy's arrays.
MASKED = """
class Masked:
    def __array_ufunc__(self, ufunc, method, *inputs, **named):
        assert isinstance(ufunc, np.ufunc)
        assert not any(type(x).__module__.startswith("lazyfuse") for x in inputs)
        return getattr(ufunc, method)(*[2.0 if x is self else x for x in inputs], **named)
"""


@pytest.mark.parametrize("named", [{}, {"dtype": "f8"}, {"dtype": "f8", "casting": "same_kind"}])
def test_keywords_for_somebody_elses_type(named: Any) -> None:
    x, names = numbers(), {"np": np}
    exec(MASKED, names)
    masked: Any = names["Masked"]
    same(lf.multiply(lf.array(x) + 0, masked(), **named), np.multiply(x, masked(), **named))
    many = list(range(20))
    same(lf.add(masked(), many, **named), np.add(masked(), many, **named))


@pytest.mark.parametrize("bins", [[3.0, 1.0, 2.0], [[1.0]], [1j]])
def test_edges_that_numpy_refuses(bins: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as theirs:
        np.digitize(numbers(), bins)
    with pytest.raises(type(theirs.value)) as ours:
        lf.digitize(lf.array(numbers()) + 0, bins)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("count", [2, 3, 16])
def test_stacks_of_few_products(count: int) -> None:
    x = np.random.default_rng(count).normal(size=(count, 520, 96))
    x = x @ x.transpose(0, 2, 1) / 96
    found = np.asarray(lf.array(x) @ lf.array(x))
    np.testing.assert_allclose(found, x @ x, rtol=1e-11, atol=1e-11)
    with lf.options(eager_below=0):
        found = np.asarray((lf.array(x) + 0) @ lf.array(x[:1]))
    np.testing.assert_allclose(found, x @ x[:1], rtol=1e-11, atol=1e-11)


def test_more_geometries_than_replays_are_kept_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """One structure at many sizes; replays are let go of together when they are many."""
    monkeypatch.setattr(capture, "LIMIT", 2)
    with lf.options(eager_below=0):
        for size in (60, 61, 62, 63, 60, 64):
            a = np.random.default_rng(size).uniform(size=(size, size))
            x = lf.array(a)
            for _ in range(4):
                found = (x @ x + 1.0).max()
                assert float(found) == (a @ a + 1.0).max()


def test_products_of_few_rows_are_not_tiled() -> None:
    a = np.random.default_rng(0).uniform(size=(40, 300))
    b = np.random.default_rng(1).uniform(size=(300, 30_000))
    found = lf.array(a) @ lf.array(b) + 1.0
    found = found / found.sum(axis=1, keepdims=True)
    want = a @ b + 1.0
    np.testing.assert_allclose(found, want / want.sum(axis=1, keepdims=True), rtol=1e-12)


def test_a_chain_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "LONGEST", 2)
    monkeypatch.setattr(chains, "SKIPPED", 0)
    for size in (300, 301):
        a = np.random.default_rng(0).uniform(size=(size, size))
        x = lf.array(a)
        for _ in range(3):
            x, a = x / x.sum(axis=1, keepdims=True) + 1, a / a.sum(axis=1, keepdims=True) + 1
        np.testing.assert_allclose(np.asarray(x), a, rtol=1e-13)


def test_a_kernel_of_several_threads_comes_round() -> None:
    a = np.random.default_rng(0).uniform(0.5, 2, 1_500_000)
    x = lf.array(a)
    for turn in range(8):
        x, a = np.sqrt(x) * 3.0 + x, np.sqrt(a) * 3.0 + a
        assert float(x[turn]) == a[turn]
    np.testing.assert_array_equal(np.asarray(x), a)


CHAINS: dict[str, Program] = {
    "first and last": lambda xp, x: x.sum(axis=(0, 2)),
    "first two": lambda xp, x: (x + 1).sum(axis=(0, 1)),
    "last two": lambda xp, x: x.prod(axis=(1, 2)),
    "outermost and last": lambda xp, x: [x.prod(axis=(0, 2)), (x + 1).prod(axis=(0, 2))],
    "products down": lambda xp, x: (x * 1.5).prod(axis=0),
    "products down beside values": lambda xp, x: [y := x * 1.5, y.prod(axis=0)],
    "positions": lambda xp, x: [(x * 2).argmax(axis=0), (x * 2).argmin(axis=1), x.argmax()],
    "a number beside": lambda xp, x: [x / x.sum(), x - x.mean(axis=(0, 2), keepdims=True)],
    "the largest": lambda xp, x: [x.max(axis=(0, 2)), abs(x).min(axis=0), (x > 1).any(axis=(0, 1))],
}


@pytest.mark.parametrize(("dtype", "grid"), [("f8", True), ("f8", False), ("i4", False)])
@pytest.mark.parametrize("name", CHAINS)
def test_reductions_on_opencl(name: str, dtype: str, grid: bool) -> None:
    pytest.importorskip("pyopencl")
    x = np.random.default_rng(0).integers(1, 3, (5, 30, 40)).astype(dtype)
    with lf.options(device="opencl", eager_below=0, opencl_grid=grid), np.errstate(over="ignore"):
        wanted, found = CHAINS[name](np, x), CHAINS[name](lf, lf.array(x) + 0)
        lf.evaluate(*found if type(found) is list else [found])
        same(found, wanted)


def test_figures_that_are_forgotten_are_looked_up_again() -> None:
    before = cpu_figures.tuning()
    cpu_figures.use(None)
    try:
        assert cpu_figures.tuning() == cpu_figures.defaults()
    finally:
        cpu_figures.use(before)
