"""Selections `x[mask]`: put off until their size is asked for, and NumPy's all the same."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.arrays import mask_selection
from lazyfuse.kernels import compact
from lazyfuse.runtime.events import counters
from tests import campaign
from tests.helpers.compare import both, outcome, same
from tests.helpers.discrete_device import in_use
from tests.pairwise import first

SIZE = 20_003  # above `eager_below`, and no whole number of blocks
DTYPES = ("f8", "f4", "i8", "u1", "?", "c16", "g")


@pytest.fixture(autouse=True)
def _deferring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let selections of few elements, too, stay deferred."""
    monkeypatch.setattr(mask_selection, "WORTH", 0)
    with config.options(compile_after=0, eager_below=16384):
        yield


def _data(dtype: str, size: int = SIZE, seed: int = 0) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(size) * 50
    if np.dtype(dtype).kind == "c":
        return (values + 1j * generator.standard_normal(size)).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        return generator.integers(-100 if dtype[0] == "i" else 0, 100, size).astype(dtype)
    return values > 0 if dtype == "?" else values.astype(dtype)


def _mask(kind: str, size: int = SIZE) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(5)
    if kind == "runs":
        return np.arange(size) // 777 % 3 == 0
    share = {"none": 0.0, "few": 0.001, "half": 0.5, "most": 0.99, "all": 1.0}[kind]
    return generator.random(size) < share


REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda xp, y: y.sum(),
    "np.sum": lambda xp, y: xp.sum(y, axis=0),
    "add.reduce": lambda xp, y: xp.add.reduce(y),
    "sum of an axis": lambda xp, y: y.sum(axis=-1, keepdims=True),
    "sum, another dtype": lambda xp, y: y.sum(dtype="f8"),
    "sum, initial": lambda xp, y: y.sum(initial=3),
    "mean": lambda xp, y: y.mean(),
    "max": lambda xp, y: y.max(),
    "min": lambda xp, y: xp.min(y),
    "prod": lambda xp, y: (y * 0 + 1).prod(),
    "any": lambda xp, y: y.any(),
    "all": lambda xp, y: xp.all(y),
    "all of it": lambda xp, y: (y == y).all(),
    "argmax": lambda xp, y: y.argmax(),
    "argmin": lambda xp, y: xp.argmin(y),
    "std": lambda xp, y: y.std(),
    "count_nonzero": lambda xp, y: xp.count_nonzero(y),
    "ptp": lambda xp, y: xp.ptp(y),
    "wrong axis": lambda xp, y: y.sum(axis=1),
    "maximum.reduce": lambda xp, y: xp.maximum.reduce(y),
    "logical_and.reduce": lambda xp, y: xp.logical_and.reduce(y),
    "size": lambda xp, y: (len(y), y.size, y.shape, y.nbytes, y.ndim, y.dtype),
    "values": lambda xp, y: y,
    "cumsum": lambda xp, y: xp.cumsum(y),
    "sort": lambda xp, y: xp.sort(y),
    "of what is positive": lambda xp, y: y[y > 0].sum(),
    "twice": lambda xp, y: (y.sum(), y.max(), len(y), y.sum(), (y + y).sum()),
}


# the texts name the dtype and no more: every reduction of float64s, two of each other dtype, among
# them the sum, whose loop hangs on the dtype
SELECTED = sorted(
    ((dtype, name) for dtype in DTYPES for name in REDUCTIONS),
    key=lambda pair: (
        pair[0] != "f8"
        and (list(REDUCTIONS).index(pair[1]) + DTYPES.index(pair[0])) % 18 > 0
        and (pair[1] != "sum" or pair[0] in ("f4", "i8"))  # those two: sums of every density
    ),
)
USUAL = len(REDUCTIONS) + 2 * (len(DTYPES) - 1) - 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("selected", first(USUAL, SELECTED), ids=str)
def test_reductions(selected: tuple[str, str]) -> None:
    dtype, name = selected
    function = REDUCTIONS[name]
    both(lambda xp, x, m: function(xp, x[m]), _data(dtype), _mask("half"))


@pytest.mark.parametrize("kind", ["none", "few", "most", "all", "runs"])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "any", "all", "size", "values", "argmax"])
def test_masks_of_every_density(name: str, kind: str) -> None:
    function = REDUCTIONS[name]
    for dtype in ("f8", "i8"):
        both(lambda xp, x, m: function(xp, x[m]), _data(dtype), _mask(kind))


@pytest.mark.parametrize("size", first(4, [40_000, 65_536, 65_537, 400_001, 100_003]))
def test_sums_follow_numpys_tree(size: int) -> None:
    for dtype in ("f4", "f8", "c8", "c16"):
        x = _data(dtype, size)
        for share in (0.03, 0.5, 0.97):
            m = np.random.default_rng(1).random(size) < share
            assert np.asarray(compact.total(x, m)).tobytes() == x[m].sum().tobytes()
            both(lambda xp, x, m: x[m].sum(), x, m)


def test_nothing_is_made_for_a_reduction() -> None:
    x = lf.array(_data("f8"))
    y = x[x > 0]
    assert mask_selection.of(y) is not None
    for result in (y.sum(), (y * 2 + 1).max(), y[y > 1].sum(), y.mean(), (y > 1).any(), len(y)):
        assert np.isfinite(float(result))
    found = mask_selection.of(y)
    assert found is not None
    assert found.made is None
    assert float((y * 2 + 1).sum()) > 0  # work that is summed is done on the values
    assert found.made is not None
    assert float(y[0]) > 0
    assert mask_selection.of(y) is None


def test_the_option_makes_selections_at_once() -> None:
    x = lf.array(_data("f8"))
    with config.options(dynamic_sizes=False):
        y = x[x > 0]
        assert mask_selection.of(y) is None
        assert not mask_selection.may_defer(x, x > 0)
    assert mask_selection.may_defer(x, x > 0)
    same(y, _data("f8")[_data("f8") > 0])


Look = Callable[[Any, Any], Any]
BEFORE: list[Look] = [
    lambda xp, y: (y * 1e300).max(),
    lambda xp, y: (y / y).sum(),
    lambda xp, y: (1.0 / y).min(),
    lambda xp, y: (y - y).sum(),
    lambda xp, y: (y + np.inf).max(),
]
AFTER: list[Look] = [
    lambda xp, y: y.mean(),
    lambda xp, y: xp.sqrt(xp.abs(y)).sum(),
    lambda xp, y: (y / 1e-5).max(),
    lambda xp, y: (y // 1.0).sum(),
]


# the first of them overflow, are invalid, divide by zero: the others meet these conditions again
@pytest.mark.parametrize(
    "looks", first(1, [(BEFORE[:3], AFTER[:1]), (BEFORE, AFTER)]), ids=["few", "all"]
)
def test_dropped_elements_raise_no_condition(looks: tuple[list[Look], list[Look]]) -> None:
    before, after = looks
    x = _data("f8")
    x[::7] = np.inf
    x[1::7] = np.nan
    x[2::7] = 1e308
    x[3::7] = 0.0
    small = np.isfinite(x) & (np.abs(x) < 1e10) & (x != 0)

    def work(xp: Any, x: Any, m: Any) -> Any:
        y = x[m]
        found = [look(xp, y) for look in before]
        y *= 2.0
        return [*found, *(look(xp, y) for look in after)]

    both(work, x, small)


def test_elements_that_are_kept_raise_their_conditions() -> None:
    x = _data("f8")
    x[12] = 1e308
    x[13] = -np.inf
    m = np.ones(SIZE, bool)
    m[20:] = False
    m[30:15000] = True
    for each in (
        lambda xp, x, m: (x[m] * 10.0).max(),
        lambda xp, x, m: (x[m] - x[m]).sum(),
        lambda xp, x, m: (x[m] / (x[m] - x[m])).sum(),
        lambda xp, x, m: (x * 1e300)[m].sum(),
        lambda xp, x, m: x[m].mean(),
    ):
        both(each, x, m)


FORMS: list[str] = [
    "y = x[m]", "y = w[m]", "y = x[x > 0.5]", "y = x[k > 2]", "y = k[m]", "z = x[m]", "z = w[m]",
    "z = x[x > 0.5]", "y = y * 2", "y = 3 - y", "y = y + z", "z = z * y", "y = y / 3.0",
    "y = xp.abs(y)", "y = -y", "y = xp.maximum(y, 0)", "y = xp.minimum(y, z)", "y = y.real ** 2",
    "y = y[y > 0]", "y = y[z > 0]", "y = y[::2]", "y = y[5:]", "y += 1", "y *= z", "y -= y",
    "x[m] = y", "x[m] += 1", "x[m] = 0", "x[x > 1] *= 0.5", "x[m] = x[m] - w[m]", "x[10:300] = 2",
    "x += 1", "m[:90] = False", "m = ~m", "m = x > w", "w = x.copy()", "y[:3] = 7", "y[y < 0] = 1",
    "z = y.copy()", "z = y", "y = xp.where(y > 0, y, 0)", "y = x.reshape(2, -1)[m.reshape(2, -1)]",
    "y = y.astype('f4')", "y = y.T", "y = xp.concatenate([y, z])", "y = xp.sort(y)", "y.fill(4)",
    "y = xp.extract(m, x)", "y = xp.compress(m, x)", "xp.putmask(x, m, w)", "xp.place(x, m, 3.0)",
    "y = y.clip(0, 5)", "y = 1 / (y + 1000)", "y = y > z", "y = y & (z > 0)", "y = y + 1j",
]  # fmt: skip
LOOKS: list[str] = [
    "y.sum()", "y.max()", "y.mean()", "len(y)", "y.shape", "y.any()", "y.dtype", "y[0]", "z.sum()",
    "y.copy()", "xp.nonzero(m)", "xp.flatnonzero(x > 1)", "xp.argwhere(m)[:5]", "(y > 1).sum()",
    "xp.count_nonzero(y)", "y.flags.writeable", "y.base is None", "y.strides", "repr(y)",
    "xp.where(x > 2)", "y.tolist()[:3]", "y.min() + z.max()", "y @ y", "xp.var(y)", "bool(y.all())",
]  # fmt: skip


def _program(seed: int) -> list[str]:
    generator = np.random.default_rng(seed)
    lines = ["y = x[m]", "z = w[m]"]
    for _ in range(generator.integers(2, 9)):
        lines.append(str(generator.choice(FORMS)))
        if generator.random() < 0.5:
            lines.append(f"found.append({generator.choice(LOOKS)})")
    return [*lines, "found += [y, z, x, m, w]"]


def _run(lines: list[str]) -> Callable[..., Any]:
    def work(xp: Any, x: Any, w: Any, k: Any, m: Any) -> Any:
        found: list[Any] = []
        scope = {"xp": xp, "x": x, "w": w, "k": k, "m": m, "found": found}
        for line in lines:
            try:
                exec(line, scope)
            except (ValueError, TypeError, IndexError) as error:
                found.append(f"{type(error).__name__}: {error}")
        return found

    return work


def _check(seed: int, size: int) -> None:
    lines = _program(seed)
    kind = ["half", "few", "runs", "most", "none"][seed % 5]
    values = (_data("f8", size), _data("f8", size, 1), _data("i8", size), _mask(kind, size))
    theirs, warned = outcome(_run(lines), np, values)
    ours, told = outcome(_run(lines), lf, values)
    try:
        same(ours, theirs)
        assert told == warned
    except AssertionError as error:
        error.add_note("\n".join(lines))
        raise


@campaign.rounds(8)
def test_random_programs(seeds: range) -> None:
    for seed in seeds:
        _check(seed, 40_000)
        with config.options(eager_below=0):
            _check(seed, 3000)


@pytest.mark.parametrize("options", [{"threads": 1}, {"fusion": False}, {"routines": False}])
def test_switches(options: dict[str, Any]) -> None:
    with config.options(**options):
        for seed in campaign.drawn(3):  # the first of those above, whose kernels are there
            _check(seed, 40_000)


def test_on_a_device_with_memory_of_its_own() -> None:
    for seed in campaign.drawn(20, 200):
        with in_use():
            _check(seed, SIZE)


def test_threads_see_one_selection() -> None:
    x = _data("f8")
    expected = x[x > 0]
    big = lf.array(x)
    for step in range(20):
        y = big[big > 0]
        found: list[Any] = []

        def look(y: Any = y, found: list[Any] = found, step: int = step) -> None:
            found.append(
                (float(y.sum()), len(y), float(y.max()), float(y[step]), float((y + y)[1]))
            )

        threads = [threading.Thread(target=look) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        once = (expected.sum(), len(expected), expected.max(), expected[step], expected[1] * 2)
        assert found == [once] * 4


def test_a_program_may_sum_a_selection() -> None:
    program = lf.freeze(lambda x: x[x > 0].sum(), x=_data("f8"))
    for seed in range(3):
        values = _data("f8", SIZE, seed)
        same(program(x=values), values[values > 0].sum())


def test_explain_and_report_tell_of_selections() -> None:
    x = lf.array(_data("f8"))
    y = x[x > 0]
    assert "its size is not known" in str(lf.explain(y))
    assert mask_selection.of(y) is not None
    assert "compiled loops" in str(lf.explain(y.sum()))
    counters.reset()
    assert mask_selection.of(x[x > 1]) is not None
    with config.options(dynamic_sizes=False):
        assert len(x[x > 1])
    text = str(lf.report())
    assert "1 selection" in text
    assert "made at once: switched off" in text


def test_two_dimensions_and_orders() -> None:
    x, m = _data("f8", 70_000).reshape(200, 350), _mask("half", 70_000).reshape(200, 350)
    for order in ("C", "F"):
        for other in ("C", "F"):
            both(
                lambda xp, x, m, a=order, b=other: [
                    xp.array(x, order=a)[xp.array(m, order=b)].sum(),
                    xp.array(x, order=a)[xp.array(m, order=b)],
                    xp.nonzero(xp.array(m, order=b)),
                    xp.array(x, order=a).T[xp.array(m, order=b).T].mean(),
                ],
                x, m,
            )  # fmt: skip
    both(lambda xp, x, m: [each.strides for each in xp.nonzero(m)], x, m)
    both(lambda xp, x, m: x[::2, ::3][m[::2, ::3]].sum(), x, m)
    both(lambda xp, x, m: x[m[:, 0]].sum(), x, m)
    both(lambda xp, x, m: x[m[:-1]], x, m)


@pytest.mark.smoke
def test_what_is_selected_is_a_copy() -> None:
    def work(xp: Any, x: Any, m: Any) -> Any:
        y, z = x[m], x[m]
        x[:] = 0
        m[:] = False
        z[:10] = 5
        return [y.sum(), y, z, y.base is None, x.sum()]

    both(work, _data("f8"), _mask("half"))


def test_ways_out() -> None:
    x = _data("f8")

    def selected() -> Any:
        big = lf.array(x)
        return big[big > 0]

    expected = x[x > 0]
    assert np.array_equal(np.asarray(selected()), expected)
    assert np.array_equal(pickle.loads(pickle.dumps(selected())), expected)
    assert bytes(memoryview(selected())) == expected.tobytes()
    assert repr(selected()) == repr(expected)
    assert selected().tolist() == expected.tolist()
    assert [float(each) for each in selected()][:9] == expected.tolist()[:9]
    assert np.shape(selected()) == expected.shape
    assert str(lf.explain(selected()))


def test_many_selections_do_not_keep_what_they_came_from() -> None:
    x = lf.array(_data("f8"))
    kept = [(x + step)[x > step] for step in range(40)]
    assert sum(mask_selection.of(each) is not None for each in kept) <= mask_selection.LIMIT
    with config.options(flush_bytes=1 << 20):
        kept += [(x - step)[x > step] for step in range(20)]
        assert sum(mask_selection.of(each) is not None for each in kept) <= 8
    for step, each in enumerate(kept[:40]):
        assert float(each.sum()) == float((_data("f8") + step)[_data("f8") > step].sum())
