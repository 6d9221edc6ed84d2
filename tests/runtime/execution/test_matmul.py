"""Large matrix products by our own loops: bits, bounds, conditions, and what follows in a tile.

Test names end with the feature rows that they show.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.devices.base import DeviceError
from lazyfuse.devices.cpu import matmul_blas, matmul_packing
from lazyfuse.runtime.execution import matmul, tiles
from lazyfuse.runtime.scheduling import evaluate
from tests.helpers.tile_watch import Watch, watching
from tests.pairwise import first as usual

Array = Any


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Small products are done by our loops, too; everything is recorded and compiled at once."""
    found = watching(monkeypatch)
    monkeypatch.setattr(matmul, "WORTH", 1)
    monkeypatch.setattr(matmul, "LARGE", 1)
    monkeypatch.setattr(matmul, "NARROWEST", (1, 1, 1))
    evaluate.clear_plans()
    with np.options(eager_below=0, compile_after=0, threads_above=1, matrix_products="loops"):
        if matmul._products.get("f8") is None:
            pytest.skip("this processor has no loops of ours")
        yield found
    evaluate.clear_plans()


@pytest.fixture(params=["loops", "blas"])
def either(request: pytest.FixtureRequest, watch: Watch) -> Iterator[Watch]:
    """As `watch`, and with NumPy's BLAS."""
    with np.options(matrix_products=request.param):
        if matmul._products.get("f8") is None:
            pytest.skip("NumPy has another BLAS here")
        yield watch


def made(shape: tuple[int, ...], code: str, order: str, seed: int) -> Array:
    """A matrix in one of several memory layouts."""
    generator = numpy.random.default_rng(seed)
    rows, columns = shape
    wide = {"C": (rows, columns), "F": (columns, rows), "gaps": (2 * rows, 3 * columns)}
    size = wide.get(order, shape)
    values = (
        generator.normal(size=size) if code[0] == "f" else generator.integers(-9999, 9999, size)
    )
    array = (values * (1 if code[0] == "f" else 2**17)).astype(code)
    if order == "F":
        return array.T
    if order == "gaps":
        return array[::2, ::3]
    if order == "back":
        return array[::-1, ::-1]
    if order == "one":
        return numpy.broadcast_to(array[:1], shape)
    return array


def within(found: Array, first: Array, second: Array) -> bool:
    """Whether a product is within n * eps * (|a| @ |b|) of the true one."""
    wide = [x.astype(numpy.longdouble) for x in (first, second)]
    bound = first.shape[1] * numpy.finfo(found.dtype).eps * (abs(wide[0]) @ abs(wide[1]))
    return bool((abs(found - wide[0] @ wide[1]) <= bound).all())


SHAPES = [(1, 1, 1), (8, 3, 24), (7, 257, 25), (65, 300, 49), (130, 513, 23), (9, 600, 100)]


@pytest.mark.parametrize("code", sorted(matmul_packing.KINDS))
@pytest.mark.parametrize("shape", SHAPES)
def test_layouts_and_sizes_give_the_same_elements_B6_D2(
    watch: Watch, code: str, shape: tuple[int, int, int]
) -> None:
    m, k, n = shape
    orders = ["C", "F", "gaps", "back", "one"]
    for seed, (left, right) in enumerate(zip(orders, orders[2:] + orders[:2], strict=True)):
        first, second = made((m, k), code, left, seed), made((k, n), code, right, seed + 99)
        found = matmul.product(first, second)
        assert found is not None
        assert found.dtype == first.dtype
        if code[0] == "i":
            assert numpy.array_equal(found, first @ second)
            continue
        assert within(found, first, second)
        packed = [numpy.array(x, order="C") for x in (first, second)]
        assert numpy.array_equal(found, matmul.product(*packed))
        for row in {0, m // 2, m - 1}:  # a row alone has the bits that it has among others
            alone = matmul.product(first[row : row + 1], second)
            assert numpy.array_equal(found[row : row + 1], alone)
        for column in {0, n // 2, n - 1}:
            alone = matmul.product(first, second[:, column : column + 1])
            assert numpy.array_equal(found[:, column : column + 1], alone)


@pytest.mark.parametrize("depth", [5, 256, 257, 511, 512, 700])
def test_an_element_is_a_chain_of_fused_steps_in_stretches_D2(watch: Watch, depth: int) -> None:
    first, second = made((3, depth), "f8", "C", 1), made((depth, 5), "f8", "C", 2)
    stretches, left = [], depth
    while left:
        size = left if left <= 256 else 256 if left >= 512 else (left + 1) // 2
        stretches.append(size)
        left -= size
    total, at = 0.0, 0
    for size in stretches:
        part = 0.0
        for k in range(at, at + size):
            part = float(Fraction(first[2, k]) * Fraction(second[k, 3]) + Fraction(part))
        total, at = total + part, at + size
    found = matmul.product(first, second)
    assert found is not None
    assert found[2, 3] == total


def test_threads_and_tiles_change_no_bit_D2(either: Watch) -> None:
    first, second = made((701, 130), "f8", "C", 1), made((130, 70), "f8", "F", 2)
    wide = second.T @ first.T
    with np.options(threads=1):
        alone = numpy.asarray(np.array(first) @ np.array(second))
        turned = numpy.asarray(np.array(second.T) @ np.array(first.T))
    with np.options(threads=2):
        assert numpy.array_equal(alone, numpy.asarray(np.array(first) @ np.array(second)))
        assert numpy.array_equal(turned, numpy.asarray(np.array(second.T) @ np.array(first.T)))
        assert numpy.array_equal(alone, numpy.asarray(np.dot(np.array(first), np.array(second))))
    assert numpy.allclose(turned, wide)
    assert either.tiles[0] > 1  # rows
    assert either.tiles[1] > 1 or np.options.matrix_products == "blas"  # columns


STACKS = [((9, 21, 33), (9, 33, 10)), ((3, 70, 9), (3, 9, 40)), ((40, 5, 6), (6, 7))]
STACKS += [((5, 6), (30, 6, 7)), ((2, 3, 11, 12), (2, 3, 12, 25)), ((2, 12, 9, 12), (12, 25))]


@pytest.mark.parametrize("code", ["f8", "i4"])
@pytest.mark.parametrize("shapes", STACKS)
def test_stacks_are_the_products_of_their_items_B6(
    either: Watch, code: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    generator = numpy.random.default_rng(5)
    pair = [(generator.normal(size=shape) * 100).astype(code) for shape in shapes]
    turned = [x.swapaxes(-1, -2).copy().swapaxes(-1, -2) for x in pair]
    theirs = pair[0] @ pair[1]
    for first, second in (pair, turned):
        found = matmul.product(first, second)
        assert found is not None
        assert found.shape == theirs.shape
        assert numpy.allclose(found, theirs)
        wide = [numpy.broadcast_to(x, (*theirs.shape[:-2], *x.shape[-2:])) for x in (first, second)]
        for at in numpy.ndindex(theirs.shape[:-2]):
            alone = matmul.product(wide[0][at], wide[1][at])
            assert numpy.array_equal(found[at], alone)
        with np.options(threads=1):
            assert numpy.array_equal(found, matmul.product(first, second))
        assert numpy.array_equal(found, numpy.asarray(np.array(first) @ np.array(second)))


@pytest.mark.parametrize("heads", [5, 12])
def test_stacks_in_chains_B3(either: Watch, heads: int) -> None:
    def attention(xp: Any, q: Any, k: Any, v: Any, w: Any) -> Any:
        y = q @ xp.swapaxes(k, 1, 2) * 0.3
        e = xp.exp(y - xp.max(y, axis=2, keepdims=True))
        return ((e / xp.sum(e, axis=2, keepdims=True)) @ v) @ w + 1.0

    generator = numpy.random.default_rng(5)
    taken = [generator.normal(size=(heads, 50, 16)) for _ in range(3)]
    taken.append(generator.normal(size=(16, 20)))
    expected = attention(numpy, *taken)
    found = numpy.asarray(attention(np, *[np.array(x) for x in taken]))
    assert numpy.allclose(found, expected)
    with np.options(pipelining=False, threads=1):
        alone = numpy.asarray(attention(np, *[np.array(x) for x in taken]))
    assert numpy.array_equal(found, alone)


def test_sizes_alone_decide_B6() -> None:
    double, single = numpy.dtype("f8"), numpy.dtype("f4")
    for choice in ("blas", "loops"):
        with np.options(matrix_products=choice):
            _check_sizes(double, single)
    with np.options(matrix_products="off"):
        assert not matmul.is_ours((512, 512), (512, 512), (double, double))
    known = not matmul_blas.is_narrow()  # BLAS's own threads are the best at two matrices of floats
    assert matmul.is_ours((512, 512), (512, 512), (double, double)) is not known
    assert matmul.is_ours((512, 512), (512, 512), (numpy.dtype("i8"),) * 2)
    assert matmul.is_ours((64, 64, 64), (64, 64, 64), (double, double))


def _check_sizes(double: Any, single: Any) -> None:
    assert matmul.is_ours((512, 512), (512, 512), (double, double))
    assert not matmul.is_ours((512, 512), (512, 512), (double, single))
    assert not matmul.is_ours((512, 512), (512, 512), (double.newbyteorder(),) * 2)
    assert not matmul.is_ours((512, 512), (512, 512), (numpy.dtype("c16"),) * 2)
    assert not matmul.is_ours((128, 128), (128, 128), (double, double))
    assert not matmul.is_ours((181, 181), (181, 181), (double, double))  # never recorded
    assert not matmul.is_ours((100000, 512), (512, 1), (double, double))
    assert not matmul.is_ours((512,), (512, 512), (double, double))
    assert matmul.is_ours((64, 64, 64), (64, 64, 64), (double, double))
    assert not matmul.is_ours((1, 512, 512), (3, 512, 512), (double, double))


def test_without_the_option_products_are_numpys_B10(watch: Watch) -> None:
    first, second = made((65, 300), "f8", "C", 1), made((300, 49), "f8", "C", 2)
    with np.options(matrix_products="off"):
        found = numpy.asarray(np.array(first) @ np.array(second))
        assert numpy.array_equal(found, first @ second)
        assert not watch.tiles


@pytest.mark.parametrize("kind", ["over", "invalid"])
def test_conditions_are_told_D3(either: Watch, kind: str) -> None:
    first, second = numpy.full((64, 64), 1.0), numpy.full((64, 64), 1.0)
    first[3, 5] = 1e300 if kind == "over" else numpy.inf
    second[5, 7] = 1e300
    first[3, 6], second[6, 7] = (1.0, 1.0) if kind == "over" else (numpy.inf, -1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = first @ second
    message = "overflow" if kind == "over" else "invalid value"
    for follow in (lambda y: y, lambda y: y + 1.0):
        with pytest.warns(RuntimeWarning, match=f"{message} encountered in matmul"):
            found = numpy.asarray(follow(np.array(first) @ np.array(second)))
        assert numpy.array_equal(found, follow(expected), equal_nan=True)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("error")
            quiet = numpy.asarray(follow(np.array(first) @ np.array(second)))
        assert numpy.array_equal(quiet, follow(expected), equal_nan=True)


def test_padding_raises_nothing_D3(watch: Watch) -> None:
    """Columns and rows that do not exist are no zeros beside infinities."""
    first, second = numpy.full((9, 64), numpy.inf), numpy.full((64, 25), 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = numpy.asarray(np.array(first) @ np.array(second))
    assert (found == numpy.inf).all()


# -------------------------------------------------------------------------------- in chains


def layer(xp: Any, x: Any, w: Any, b: Any) -> Any:
    return xp.maximum(x @ w + b, 0.0)


def two_layers(xp: Any, x: Any, w: Any, b: Any) -> Any:
    return xp.maximum(x @ w + b, 0.0) @ w.T * 0.5


def scores(xp: Any, x: Any, w: Any, b: Any) -> Any:
    y = x @ w + b
    e = xp.exp(y - xp.max(y, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


def standardised(xp: Any, x: Any, w: Any, b: Any) -> Any:
    return ((x - xp.mean(x, axis=1, keepdims=True)) * 2.0) @ w + b


def attention(xp: Any, x: Any, w: Any, b: Any) -> Any:
    y = (x @ w) @ xp.transpose(x @ w) * 0.1
    e = xp.exp(y - xp.max(y, axis=1, keepdims=True))
    return (e / xp.sum(e, axis=1, keepdims=True)) @ (x @ w)


def dotted(xp: Any, x: Any, w: Any, b: Any) -> Any:
    return xp.sqrt(abs(xp.dot(x, w) - b)), xp.sum(xp.dot(x, w), axis=1)


def itself(xp: Any, x: Any, w: Any, b: Any) -> Any:
    y = x[: x.shape[1]] + 0.0
    return (y @ y) * 2.0 + 1.0


PROGRAMS = [two_layers, scores, standardised, attention, dotted, itself]
# a chain asks for the dtype of its products alone: to write texts, and for the product's own loops;
# the shortest chain of float32s tells of both
CHAINS = [(program, "f8") for program in PROGRAMS] + [(layer, "f4"), (layer, "f8")]
CHAINS += [(program, "f4") for program in PROGRAMS]


def results(found: Any) -> list[Array]:
    return [numpy.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("chain", usual(len(PROGRAMS) + 1, CHAINS))
def test_what_follows_a_product_runs_on_its_tiles_B3_B6(
    either: Watch, chain: tuple[Any, str]
) -> None:
    program, code = chain
    for rows, depth, columns in [(517, 33, 65), (300, 40, 40)][: 2 if code == "f8" else 1]:
        x, w = made((rows, depth), code, "C", 1), made((depth, columns), code, "C", 2)
        b = made((1, columns), code, "C", 3)[0]
        taken = [np.array(each) for each in (x, w, b)]
        expected = results(program(numpy, x, w, b))
        with np.options(pipelining=False):
            alone = results(program(np, *taken))
        with np.options(fusion=False):
            unfused = results(program(np, *taken))
        found = results(program(np, *taken))
        again = results(program(np, *taken))
        with np.options(threads=1):
            single = results(program(np, *taken))
        tolerance = 1e-9 if code == "f8" else 2e-3
        for each in zip(found, alone, unfused, again, single, expected, strict=True):
            for other in each[1:5]:
                assert numpy.array_equal(each[0], other)
            assert each[0].dtype == each[5].dtype
            assert numpy.allclose(each[0], each[5], rtol=tolerance, atol=tolerance)


def test_the_product_is_never_stored_as_a_whole_B3(either: Watch) -> None:
    x, w = made((9001, 40), "f8", "C", 1), made((40, 65), "f8", "C", 2)
    b = np.array(made((1, 65), "f8", "C", 3)[0])
    results(layer(np, np.array(x), np.array(w), b))
    assert either.tiles[-1] > 1
    text = str(np.explain(layer(np, np.array(x), np.array(w), b)))
    assert "run tile by tile; 1 values are never stored as a whole" in text


@pytest.mark.usefixtures("on_cpu")
def test_a_product_that_is_numpys_leaves_the_rest_of_a_chain_B3(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "WORTH", 1 << 40)
    monkeypatch.setattr(tiles, "STAYS", 1 << 40)
    x, w = made((3000, 8), "f8", "C", 1), made((8, 60), "f8", "C", 2)
    b = made((1, 60), "f8", "C", 3)[0]
    found = results(scores(np, np.array(x), np.array(w), np.array(b)))
    assert numpy.allclose(found[0], scores(numpy, x, w, b))
    assert watch.tiles  # softmax alone


def test_second_operands_of_the_chain_are_not_cut_B3(either: Watch) -> None:
    """A product needs all rows of what it multiplies by: it is in no chain with who makes them."""
    x, w = made((300, 40), "f8", "C", 1), made((40, 300), "f8", "C", 2)
    found = numpy.asarray(np.array(w) @ (np.exp(np.array(x)) * 2.0) + 1.0)
    assert numpy.allclose(found, w @ (numpy.exp(x) * 2.0) + 1.0)


def test_updates_between_steps_B3(either: Watch) -> None:
    x, w = made((300, 40), "f8", "C", 1), made((40, 40), "f8", "C", 2)
    ours, taken = np.array(x), np.array(w)
    theirs = x.copy()
    for _ in range(3):
        ours[:, :20] = np.tanh(ours @ taken)[:, 20:]
        theirs[:, :20] = numpy.tanh(theirs @ w)[:, 20:]
        ours += 0.5 * ours
        theirs += 0.5 * theirs
    assert numpy.allclose(numpy.asarray(ours), theirs)


def _random(xp: Any, seed: int, x: Any, w: Any) -> Any:
    """A random program of products, maps and reductions along rows."""
    choose = random.Random(seed)
    values = [x]
    for _ in range(choose.randint(3, 8)):
        value = choose.choice(values[-3:])
        kind = choose.randrange(7)
        if kind < 3:
            values.append(xp.matmul(value, w) if kind else xp.dot(value, w))
        elif kind == 3:
            values.append(value - xp.mean(value, axis=choose.randrange(2), keepdims=True))
        elif kind == 4:
            values.append(xp.maximum(value, choose.choice(values)) * 0.5)
        elif kind == 5:
            values.append(value / (1.0 + xp.sum(abs(value), axis=1, keepdims=True)))
        else:
            values.append(abs(value) + x)
    return values[-1], values[choose.randrange(len(values))], xp.sum(values[-1], axis=0)


@pytest.mark.parametrize("seed", range(5))
def test_random_programs_B3_B6_D2(either: Watch, seed: int) -> None:
    rows = 130 + 97 * (seed % 5)
    x, w = made((rows, 24), "f8", "C", seed), made((24, 24), "f8", "CF"[seed % 2], seed + 7)
    expected = results(_random(numpy, seed, x, w))
    found = results(_random(np, seed, np.array(x), np.array(w)))
    with np.options(pipelining=False, threads=1):
        alone = results(_random(np, seed, np.array(x), np.array(w)))
    for ours, other, theirs in zip(found, alone, expected, strict=True):
        assert numpy.array_equal(ours, other)
        assert numpy.allclose(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("code", ["f8", "f4"])
def test_strange_numbers_come_out_as_numpys_B6_D3(either: Watch, code: str) -> None:
    """NaN, infinities, zeros of both signs, subnormal and huge numbers."""
    generator = numpy.random.default_rng(11)
    info = numpy.finfo(code)
    strange = [0.0, -0.0, 1.0, -1.0, info.tiny / 8, -info.tiny, numpy.nan, numpy.inf, -numpy.inf]
    for depth in (1, 7, 40, 300):
        few = [*strange, info.max] if depth == 1 else strange
        first = generator.choice(few, (140, depth)).astype(code)
        second = generator.choice(few, (depth, 27)).astype(code)
        if depth > 7:  # so that some elements are numbers
            first[::2] = generator.choice(strange[:6], first[::2].shape)
            second[:, ::2] = generator.choice(strange[:6], second[:, ::2].shape)
        with np.errstate(all="ignore"), numpy.errstate(all="ignore"):
            found = numpy.asarray(np.array(first) @ np.array(second))
            wide = first.astype("g") @ second.astype("g")
            bound = depth * info.eps * (abs(first.astype("g")) @ abs(second.astype("g")))
            bound += depth * info.smallest_subnormal
            theirs = first @ second
            plain = numpy.isfinite(bound) & numpy.isfinite(theirs)
            assert (abs(found - wide)[plain] <= bound[plain]).all()
        assert numpy.array_equal(numpy.isnan(found), numpy.isnan(theirs))
        infinite = numpy.isinf(theirs)
        assert numpy.array_equal(found[infinite], theirs[infinite])


def test_a_choice_that_there_is_not_is_refused_B10() -> None:
    with pytest.raises(np.errors.ConfigurationError, match="matrix_products"):
        np.options(matrix_products="always")


def test_numpys_threads_are_as_before_B6(watch: Watch) -> None:
    try:
        library = matmul_blas.library()
    except DeviceError:
        pytest.skip("NumPy has another BLAS here")
    before = library.scipy_openblas_get_num_threads64_()
    first, second = np.array(made((300, 40), "f8", "C", 1)), np.array(made((40, 40), "f8", "C", 2))
    with np.options(matrix_products="blas"):
        numpy.asarray(np.sqrt(abs(first @ second)))
    assert library.scipy_openblas_get_num_threads64_() == before


@pytest.mark.parametrize("way", ["view", "dot", "centred", "turned"])
def test_a_matrix_by_its_own_transpose_is_numpys(either: Watch, way: str) -> None:
    """BLAS computes half of a symmetric result: the bits are NumPy's, and no chain takes it."""
    a = made((700, 900), "f8", "C", 4)

    def program(xp: Any, x: Any) -> Any:
        if way == "view":
            return x @ x.T
        if way == "dot":
            return xp.dot(x, x.T)
        if way == "turned":
            return x.T @ x
        d = x - 0.5
        return d @ d.T

    for _ in range(4):
        found = numpy.asarray(program(np, np.array(a)))
        assert numpy.array_equal(found, program(numpy, a))
        assert numpy.array_equal(found, found.T)
