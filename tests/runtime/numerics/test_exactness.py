"""The exactness contract: NumPy's bits, or units in the last place, in every tier and device.

docs/exactness.md states what these tests hold to. Each test runs in all ways of computing.

What depends on an operation, a dtype and a way together is told by the tests of each language's
texts (tests/codegen). Here each dtype and each group of operations is met by NumPy's blocks and by
one of the languages that are compiled, and each language meets a part of both. The others have the
mark `long`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lazyfuse
from benchmarks.exactness.ways import WAYS
from lazyfuse.devices import registry
from lazyfuse.devices.base import DeviceError
from lazyfuse.runtime.placement import devices

Array = np.ndarray[Any, np.dtype[Any]]
N = 20_000  # several leaves of NumPy's pairwise sums
COMPUTING = ("blocked", "compiled", "opencl")


@pytest.fixture(scope="module", params=COMPUTING)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Everything computed in one way."""
    name: str = request.param
    if name.startswith("opencl"):
        pytest.importorskip("pyopencl", reason="pyopencl is not installed")
        try:
            registry.device("opencl")
        except DeviceError as error:
            pytest.skip(str(error))
    with WAYS[name]():
        yield name


def in_turns(names: str, *values: Any) -> pytest.MarkDecorator:
    """Arguments of which every value is met, by ways that are compiled in turns; the rest is long.

    Compiling takes the time: a text for each dtype and operation.
    """
    usual = set()
    for turn in range(max(len(each) for each in values)):
        row = tuple(each[(turn + turn // len(each)) % len(each)] for each in values)
        usual |= {("blocked", *row), (("compiled", "opencl")[turn % 2], *row)}
    rows = [
        pytest.param(*row, marks=() if row in usual else pytest.mark.long)
        for row in itertools.product(COMPUTING, *values)
    ]
    arguments = ["way", *(each.strip() for each in names.split(","))]
    return pytest.mark.parametrize(arguments, rows, indirect=["way"])


def bits(values: Any) -> Array:
    """Every bit of an array, with one kind of NaN."""
    array = np.asarray(values)
    if array.dtype.kind == "c":
        return np.stack([bits(array.real), bits(array.imag)])
    if array.dtype.kind != "f":
        return array
    array = np.where(np.isnan(array), np.asarray(np.nan, array.dtype), array)
    if array.dtype == np.longdouble:  # has bytes that nobody sets
        return np.array([repr(each) for each in array.ravel()])
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def outcome(
    function: Callable[..., Any], xp: Any, values: tuple[Any, ...]
) -> tuple[tuple[Array, ...], list[str]]:
    """The results of a function as NumPy's arrays (ours computed together), and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(xp, *[xp.array(value) for value in values])
        results = result if isinstance(result, tuple) else (result,)
        if xp is lazyfuse:
            lazyfuse.evaluate(*[each for each in results if isinstance(each, lazyfuse.ndarray)])
        found = tuple(np.asarray(each) for each in results)
    return found, sorted({f"{each.category.__name__}: {each.message}" for each in caught})


def same(function: Callable[..., Any], *values: Any) -> None:
    """The same dtypes, shapes, bits and warnings as NumPy.

    Of operations that run as one kernel the first that can raise a condition is told of.
    """
    theirs, their_warnings = outcome(function, np, values)
    ours, our_warnings = outcome(function, lazyfuse, values)
    for place, (got, want) in enumerate(zip(ours, theirs, strict=True)):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(bits(got), bits(want), f"result {place}")
    assert told(our_warnings, len(ours)) == told(their_warnings, len(ours))


def told(warned: list[str], results: int) -> set[str]:
    """The warnings, without the names of the operations where there are several."""
    return {each.partition(" encountered")[0] if results > 1 else each for each in warned}


def each_of(names: str, *values: Any) -> None:
    """`same` for functions of the same operands, computed together."""
    same(lambda xp, *x: tuple(getattr(xp, name)(*x) for name in names.split()), *values)


def numbers(dtype: str, size: int = N, seed: int = 3) -> Array:
    """Numbers whose sums show the order of additions."""
    random = np.random.default_rng(seed)
    values: Any = random.standard_normal(size) * 10.0 ** random.integers(-3, 4, size)
    if dtype[0] == "c":
        values = values + 1j * random.standard_normal(size)
    return np.asarray(values.astype(dtype))


def special(dtype: str) -> Array:
    """Zeros, subnormals, the ends of the range, infinities and NaN."""
    real = np.finfo(dtype)
    least, small = real.smallest_subnormal, real.smallest_normal
    ends = [0.0, 1.0, 0.1, 1.5, 3.0, least, 5 * least, small, small / 2, real.max, np.inf]
    with np.errstate(all="ignore"):
        return np.array([*ends, *[-x for x in ends], np.nan], dtype)


def pairs(values: Array) -> tuple[Array, Array]:
    """Each number with each."""
    first, second = np.meshgrid(values, values)
    return first.ravel().copy(), second.ravel().copy()


# ---------------------------------------------------------------------------- exact operations

PAIRS = "add subtract multiply divide floor_divide remainder fmod"
ORDERS = "maximum minimum copysign nextafter heaviside less equal greater_equal"
ONES = "sqrt square reciprocal rint floor ceil trunc negative absolute sign spacing"
TESTS = "signbit isnan isfinite isinf degrees radians"


@in_turns("dtype, about", ["f4", "f8"], ["pairs", "orders", "ones", "parts"])
def test_special_floats_give_numpys_bits_and_warnings(way: str, dtype: str, about: str) -> None:
    a, b = pairs(special(dtype))
    if about == "pairs":
        each_of(PAIRS, a, b)
    elif about == "orders":
        each_of(ORDERS, a, b)
        same(lambda xp, x, y: (xp.where(x > 0, x, y), xp.clip(x, -1, 1)), a, b)
    elif about == "ones":
        each_of(ONES, special(dtype))
        each_of(TESTS, special(dtype))
    else:
        same(lambda xp, x: (*xp.modf(x), *xp.frexp(x)), special(dtype))
        same(lambda xp, x: xp.ldexp(x, xp.arange(x.size) % 90 * 30 - 1300), np.resize(a, 900))


@in_turns("dtype, about", ["c8", "c16"], ["pairs", "ones"])
def test_special_complex_numbers_give_numpys_bits(way: str, dtype: str, about: str) -> None:
    x, y = pairs(np.array([0.0, -0.0, 1.0, -2.5, 1e30, np.inf, -np.inf, np.nan]))
    with np.errstate(all="ignore"):
        z = np.empty(x.shape, dtype)
        z.real, z.imag = x, y
        if about == "pairs":
            each_of("add subtract divide maximum minimum less equal", *pairs(z))
        else:
            each_of("negative conjugate reciprocal sqrt isnan exp log sin tan arcsin", z)


@in_turns("dtype, about", ["i1", "u4", "i8"], ["pairs", "quotients", "ones"])
def test_integers_wrap_divide_and_shift_as_numpys(way: str, dtype: str, about: str) -> None:
    info = np.iinfo(dtype)
    width = 8 * np.dtype(dtype).itemsize
    chosen = [0, 1, 2, 7, -1, -7, width - 1, width, width + 1, info.min, info.min + 1, info.max]
    a, b = pairs(np.array([n for n in chosen if info.min <= n <= info.max], dtype))
    if about == "pairs":
        names = "add subtract multiply left_shift right_shift gcd lcm bitwise_xor less divide"
        each_of(names, a, b)
    elif about == "quotients":
        each_of("floor_divide remainder fmod", a, b)
    else:
        each_of("negative absolute square invert sign reciprocal", a)
        same(lambda xp, x: x ** (xp.arange(x.size) % 9).astype(x.dtype), a)


@in_turns("dtype", ["i1", "i2", "i4", "i8"])
def test_the_one_quotient_that_overflows_is_told(way: str, dtype: str) -> None:
    least = np.iinfo(dtype).min
    divisors = np.full(64, -1, dtype)
    same(lambda xp, x, y: x // y, np.full(64, least, dtype), divisors)
    same(lambda xp, x, y: x // y, np.full(64, least + 1, dtype), divisors)
    same(lambda xp, x, y: x // y, np.full(64, least, dtype), -divisors)


def test_a_negative_power_of_an_integer_is_an_error(way: str) -> None:
    x = lazyfuse.array(np.arange(N))
    with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
        np.asarray(x ** lazyfuse.array(np.full(N, -1)))


@in_turns("dtype, about", ["f8", "f4"], ["folds", "maps"])
def test_subnormal_numbers_are_not_flushed_to_zero(way: str, dtype: str, about: str) -> None:
    real = np.finfo(dtype)
    steps = np.arange(1, 512, dtype=dtype) * real.smallest_subnormal
    normal = real.smallest_normal * np.linspace(1, 2, 511, dtype=dtype)
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "maps": lambda xp, x: (x + x, x * 0.5, x / 3, -x, abs(x), xp.sqrt(x), x > 0),
        "folds": lambda xp, x: (x - x[::-1], x * 0.25 + x * 0.125 - x, x.sum(), x.max()),
    }
    for values in (steps, normal):
        same(functions[about], values)


@in_turns("dtype", ["f8", "f4"])
def test_subnormal_results_of_functions_are_not_flushed(way: str, dtype: str) -> None:
    real = np.finfo(dtype)
    smallest = lazyfuse.exp(lazyfuse.array(np.full(64, np.log(real.smallest_subnormal * 4.0))))
    assert (np.asarray(smallest) > 0).all()


@in_turns("source, fits", ["f4", "f8"], [False, True])
def test_casts_of_floats_give_numpys_values_and_warnings(way: str, source: str, fits: bool) -> None:
    fitting = [0.5, -0.5, 1.9, -1.9, 126.6, 0.0, -0.0, 99.0]
    strange = [128.0, -129.0, 3e9, -3e9, 1e19, -1e19, 2e19, np.inf, -np.inf, np.nan]
    targets = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")
    if fits:
        inside = np.array([max(x, 0) for x in fitting] * 16, source)
        same(lambda xp, x: tuple(x.astype(to) for to in targets), inside)
        return
    # not to u4: NumPy's vector loop and the rest of an array give different numbers there
    for target in ("i1", "i4", "i8", "u8"):
        for each in strange:
            same(lambda xp, x, to=target: x.astype(to), np.full(64, each, source))


def test_float16_and_longdouble_are_numpys(way: str) -> None:
    for dtype in ("f2", "g"):
        a, b = pairs(special(dtype))
        same(lambda xp, x, y: (x + y, x * y, x / y, x // y, xp.maximum(x, y)), a, b)
        same(lambda xp, x: (xp.exp(x), xp.sqrt(x), x.sum(), xp.log1p(x)), special(dtype))
        same(lambda xp, x: (x.sum(), x.mean(), x.std(), xp.cumsum(x)), numbers(dtype))


# ----------------------------------------------------------------------- sums and what follows


SUMS: dict[str, tuple[tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "all": ((N,), lambda xp, x: (x.sum(), x.mean(), (x + 1).sum(), (x - x.mean()).sum())),
    "parts": ((N,), lambda xp, x: (x[::3].sum(), x[::-1].sum(), x[7:-9].sum())),
    "an axis": (
        (100, 200),
        lambda xp, x: (x.sum(0), x.sum(1), x.T.sum(0), x.mean(0), x.T.mean(1)),
    ),
    "axes": (
        (8, 50, 50),
        lambda xp, x: (x.sum((0, 2)), x.sum((1, 2)), x.sum(1), x.sum(), xp.nansum(x)),
    ),
}


@in_turns("dtype, over", ["f4", "f8", "c8", "c16"], list(SUMS))
def test_sums_are_numpys_bit_for_bit(way: str, dtype: str, over: str) -> None:
    shape, function = SUMS[over]
    same(function, numbers(dtype).reshape(shape))


@in_turns("dtype", ["f4", "f8", "c16"])
def test_running_sums_are_numpys_bit_for_bit(way: str, dtype: str) -> None:
    x = numbers(dtype)
    same(lambda xp, x: (xp.cumsum(x), xp.cumprod(x[:50]), xp.diff(x)), x)
    same(lambda xp, x: xp.trace(x.reshape(100, 200)), x)


@in_turns("dtype, about", ["f4", "f8"], ["spread", "spread of axes", "order"])
def test_what_follows_from_sums_is_numpys_bit_for_bit(way: str, dtype: str, about: str) -> None:
    x = numbers(dtype)
    if about == "spread":
        same(lambda xp, x: (x.var(), x.std()), x)
    elif about == "spread of axes":
        same(lambda xp, x: (x.reshape(100, 200).var(0), x.std(ddof=1)), x)
    else:
        same(lambda xp, x: (xp.average(x), xp.median(x), xp.percentile(x, 30), xp.ptp(x)), x)


@in_turns("dtype, rank", ["i4", "u8", "?"], [1, 2])
def test_sums_of_integers_wrap_as_numpys(way: str, dtype: str, rank: int) -> None:
    random = np.random.default_rng(1)
    values = random.integers(0, 1 << 62, N, dtype=np.int64).astype(dtype)
    if rank == 1:
        same(lambda xp, x: (x.sum(), x.mean(), xp.cumsum(x), xp.prod(x)), values)
    else:
        same(lambda xp, x: (x.reshape(100, 200).sum(0), x.reshape(100, 200).prod(1)), values)


@in_turns("dtype", ["f4", "f8"])
def test_products_are_within_a_unit_per_factor(way: str, dtype: str) -> None:
    factors = np.random.default_rng(2).uniform(0.999, 1.001, N).astype(dtype)
    want = np.prod(factors)
    got = np.asarray(lazyfuse.array(factors).prod())
    assert abs(float(got) - float(want)) <= N * np.spacing(want)
    exact = np.array([2.0, 0.5, -1.0, 4.0, 0.25] * 4000, dtype)
    same(lambda xp, x: xp.prod(x), exact)


def test_products_of_matrices_are_numpys_or_within_blas_bound(way: str) -> None:
    for dtype in ("f4", "f8", "c16"):
        a, b = numbers(dtype, 3600).reshape(60, 60), numbers(dtype, 3600, 4).reshape(60, 60)
        functions: dict[str, Callable[..., Any]] = {
            "matmul": lambda xp, x, y: x @ y,
            "dot": lambda xp, x, y: xp.dot(x, y),
            "einsum": lambda xp, x, y: xp.einsum("ij,jk->ik", x, y),
            "inner": lambda xp, x, y: xp.inner(x, y),
        }
        bound = 60 * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b))
        for name, function in functions.items():
            got, want = outcome(function, lazyfuse, (a, b))[0][0], function(np, a, b)
            limit = (
                bound if name != "inner" else 60 * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b).T)
            )
            assert (np.abs(got - want) <= limit).all(), name


# --------------------------------------------------------------- the same bits however it runs


def program(xp: Any, x: Any, y: Any) -> Any:
    """Exact and inexact maps, a sum and a broadcast."""
    z = (x * y - x / 3).reshape(400, 500)
    w = xp.exp(-abs(z)) * xp.sin(z)
    return z, w, w.sum(0), (w - w.mean()).sum(), xp.arctan2(z, w)


def run(**options: Any) -> list[bytes]:
    x, y = numbers("f8", 200_000), numbers("f8", 200_000, 5)
    with lazyfuse.options(eager_below=0, **options):
        results = program(lazyfuse, lazyfuse.array(x), lazyfuse.array(y))
        return [np.asarray(each).tobytes() for each in results]


# On OpenCL every run builds all kernels anew; that their values depend on no place and on no
# neighbour is told by tests/codegen/test_opencl_printer.py.
@pytest.mark.parametrize(
    "device",
    [
        pytest.param("cpu", marks=pytest.mark.smoke),
        pytest.param("opencl", marks=pytest.mark.long),
    ],
)
def test_threads_caches_and_fusion_change_no_bit(device: str, tmp_path: Any) -> None:
    if device == "opencl":
        pytest.importorskip("pyopencl", reason="pyopencl is not installed")
        devices.named(device)  # examined before there is an empty folder
    folder = str(tmp_path)
    base = run(device=device, threads=1, compile_after=0, cache_dir=folder)
    assert run(device=device, threads=2, threads_above=0, compile_after=0, cache_dir=folder) == base
    assert run(device=device, cache_dir=folder) == base
    assert run(device=device, cache=False, fusion=False) == base
