"""An elementwise op that is added at run time, by one row, has all that the others have."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.arrays.base import COMPILED
from lazyfuse.codegen.lowering.kernel import Instruction, Kernel, Store
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import elementwise
from lazyfuse.functions.ufunc import ufunc_of
from lazyfuse.runtime.events import counters
from tests.codegen import kernel_tools
from tests.helpers.opencl_device import in_use
from tests.helpers.states import recording_all

ROOT = Path(__file__).parents[2]
NAME = "gap_squared"
TEXT = "(({0} - {1}) * ({0} - {1}))"
SIZE = 20_000


@pytest.fixture(scope="module")
def theirs() -> Any:
    """A ufunc with loops in machine code that NumPy does not have."""
    numba = pytest.importorskip("numba")

    def gap_squared(x: Any, y: Any) -> Any:
        return (x - y) * (x - y)

    return numba.vectorize(["f4(f4,f4)", "f8(f8,f8)"])(gap_squared).ufunc


@pytest.fixture
def define(theirs: Any) -> Iterator[Callable[..., Any]]:
    """Adds the row to the table, and takes it out afterwards; gives what users call.

    Programs are known by the names of their ops: rows of other flags take another name.
    """
    before = list(ops.ROWS), dict(ops.TABLE), dict(ops.BY_UFUNC)

    def added(name: str = NAME, **columns: Any) -> Any:
        ops.define(elementwise(name, TEXT, kinds="f", ufunc=theirs, cost=2.0, **columns))
        return ufunc_of(theirs)

    yield added
    for now, known in zip((ops.TABLE, ops.BY_UFUNC), before[1:], strict=True):
        now.clear()
        now.update(known)  # type: ignore[call-overload]
    ops.ROWS[:] = before[0]


def two(dtype: str = "f8", size: int = SIZE) -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    first, second = (random.normal(size=size).astype(dtype) for _ in range(2))
    return first, second


def test_it_is_recorded_and_fused(define: Any, theirs: Any) -> None:
    function = define(exact="f")
    x, y = two()
    counters.reset()
    lazy = function(lazyfuse.array(x), lazyfuse.array(y)) + 1.0
    why = lazyfuse.explain(lazy)
    assert len(why.kernels) == 1
    assert len(why.kernels[0].operations) == 2
    assert np.array_equal(np.asarray(lazy), theirs(x, y) + 1.0)
    assert counters.totals().kernels == 1
    assert not counters.totals().fallbacks


@pytest.mark.parametrize("language", kernel_tools.LANGUAGES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_each_printer_prints_it(define: Any, theirs: Any, language: str, dtype: str) -> None:
    define(exact="f")
    body = (Instruction(NAME, (0, 1), (dtype, dtype), dtype),)
    kernel = Kernel(1, (dtype, dtype), (), body, (Store(2, dtype),))
    x, y = two(dtype, 1003)
    (result,) = kernel_tools.run(kernel, (1003,), [x, y], language=language)
    assert result.tobytes() == theirs(x, y).tobytes()


def spied(function: Any) -> list[tuple[Any, ...]]:
    """The operands of each call that gets to the ufunc itself from now on."""
    seen: list[tuple[Any, ...]] = []
    theirs = function._call

    class Spy:
        def __getattr__(self, name: str) -> Any:
            return getattr(theirs, name)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(args)
            return theirs(*args, **kwargs)

    function._call = function._compute = Spy()
    return seen


SMALL: dict[str, tuple[Any, Any]] = {
    "equal shapes": (np.arange(5.0), np.ones(5)),
    "broadcast": (np.arange(12.0).reshape(3, 4), np.ones(4)),
    "with gaps": (np.arange(24.0).reshape(3, 8)[:, ::2], np.ones((3, 4))),
    "number": (np.arange(5, dtype="f4"), 0.1),
    "number first": (0.1, np.arange(5, dtype="f4")),
    "two dtypes": (np.arange(5, dtype="i4"), np.ones(5)),
}


@pytest.mark.parametrize("case", SMALL)
def test_small_arrays_take_the_eager_path(
    define: Any, theirs: Any, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In C NumPy's loop is called with no call of the ufunc, and the general path is not taken; in
    Python the ufunc is called with NumPy's arrays and numbers.
    """
    function = define(exact="f")
    function(lazyfuse.array(np.ones(2)), lazyfuse.array(np.ones(2)))  # looks the loops up
    seen = spied(function)

    def general(*_: Any) -> Any:
        raise AssertionError("the general path")

    if COMPILED:
        monkeypatch.setattr(type(function), "_general", general)
    given = [lazyfuse.array(x) if isinstance(x, np.ndarray) else x for x in SMALL[case]]
    if case == "with gaps":
        given[0] = lazyfuse.array(np.arange(24.0).reshape(3, 8))[:, ::2]
    result, expected = function(*given), theirs(*SMALL[case])
    assert result.dtype == expected.dtype
    assert np.asarray(result).tobytes() == expected.tobytes()
    if COMPILED:
        assert not seen
    else:
        (operands,) = seen
        assert all(type(x) in (np.ndarray, float) for x in operands)


def test_loops_that_are_not_exact_run_at_once_only(define: Any) -> None:
    function = define(ulps=2)
    function(lazyfuse.array(np.ones(2)), lazyfuse.array(np.ones(2)))
    seen = spied(function)
    function(*map(lazyfuse.array, SMALL["equal shapes"]))
    assert len(seen) == (0 if COMPILED else 1)
    function(*map(lazyfuse.array, SMALL["broadcast"]))
    assert len(seen) == (1 if COMPILED else 2)


def test_numbers_keep_their_dtype_where_the_row_says_so(define: Any) -> None:
    function = define(exact="f", weak_scalars=False)
    seen = spied(function)
    function(lazyfuse.array(np.ones(3, "f4")), 0.1)
    assert seen[0][1] == 0.1
    assert type(seen[0][1]) is float


OVERFLOWING = ("over", "invalid")


def spoilt() -> tuple[Any, Any]:
    x, y = two()
    x[5], x[7], y[7] = 1e300, np.inf, np.inf
    return x, y


def told(function: Any, x: Any, y: Any, addend: float, expected: Any) -> set[str]:
    """The warnings of a call and an addition, whose results are as expected."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(lazyfuse.array(x), lazyfuse.array(y)) + addend
        assert np.array_equal(np.asarray(result), expected + addend, equal_nan=True)
    return {str(each.message) for each in caught}


WORDS = {"over": "overflow encountered in", "invalid": "invalid value encountered in"}


@pytest.mark.parametrize("flags", [OVERFLOWING, ()], ids=str)
def test_warnings_name_it_where_the_row_says_so(
    define: Any, theirs: Any, flags: tuple[str, ...]
) -> None:
    """Of a fused kernel the first op that can raise a flag is named, of small arrays the ufunc."""
    name = f"{NAME}_{len(flags)}"
    function = define(name, exact="f", flags=flags)
    named = name if flags else "add"
    x, y = spoilt()
    with np.errstate(all="ignore"):
        expected = theirs(x, y)
    few = told(function, x[:10], y[:10], 1.0, expected[:10])
    assert few == {f"{each} {NAME}" for each in WORDS.values()}
    assert told(function, x, y, 1.0, expected) == {f"{each} {named}" for each in WORDS.values()}


@pytest.mark.parametrize("flags", [OVERFLOWING, ("over",), ()], ids=str)
def test_values_tell_opencl_of_the_flags_of_the_row(
    define: Any, theirs: Any, flags: tuple[str, ...]
) -> None:
    name, (x, y) = f"{NAME}_{len(flags)}", spoilt()
    with np.errstate(all="ignore"):
        expected = theirs(x, y)
    with in_use(share=True), recording_all():
        found = told(define(name, exact="f", flags=flags), x, y, 0.0, expected)
    assert found == {f"{WORDS[flag]} {name}" for flag in flags}


def test_lists_made_from_the_table_contain_it(define: Any) -> None:
    page = script("write_exactness").class_table()
    assert NAME not in page
    define(exact="f")
    assert f"`{NAME}`" in script("write_exactness").class_table()


def script(name: str) -> ModuleType:
    """A module of scripts/."""
    found = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
