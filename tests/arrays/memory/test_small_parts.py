"""Small parts of large blocks: NumPy works on them at once, and they stay parts of their block.

Random programs keep parts over statements that record work on the block, evaluate it, export its
memory, or give it other values.
"""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.arrays.base import COMPILED
from tests import campaign

SIDE = 12
BLOCKS = "ab"
PARTS = "pqr"
KEYS = (
    "[3]", "[-1]", "[:, 2]", "[:, -1]", "[2:5, 3]", "[4, ::2]", "[::-1, 5]", "[1:3, 2:6]",
    "[5][2:]", "[::4, ::4]", "[2, 3:4]", "[n]", "[:, n]", "[n:n+3, 1]", "[...][2]", "[None, 4]",
    "[7].T", "[0:2].T", "[6, ..., ::3]",
)  # fmt: skip
INNER = ("[1:]", "[::-1]", "[...]", "[0:1]", "[::2]", ".T", "[1:][::-1]")
ELEMENTS = ("[1, 2]", "[n, 3]", "[-1, n]", "[0][5]", "[11, 11]")
STATEMENTS = (
    # parts that stay, parts of parts
    "{p} = {a}{k}", "{p} = {a}{k}", "{p} = {a}{k}", "if {q}.ndim < 5: {p} = {q}{i}",
    "if {q}.ndim < 5: {p} = {q}{i}", "{p} = {q}",
    # small work at once
    "{p} = {q} * 2 - {q}", "{p} = abs({q})", "s = float({p}.sum())", "s = float({a}{e})",
    "{a}{e} = s", "{a}{e} = 7", "{a}{e} += 1.5", "{a}{e} = np.float64(0.25)",
    "s = {p}.ravel()[0] * 1.0",
    "{a}{k} = 2.5", "{a}{k} = {b}{k} * 0.5", "{a}{k} += {b}{k}", "{a}{k} -= {a}{k} * 0.5",
    "{p} += 1", "{p} *= {q}", "{p}[...] = {q}", "{p}[...] = s", "{p}.fill(s)", "{p}{i} = 4",
    "np.add({p}, {p}, out={p})", "np.negative({q}, out={q})", "np.copyto({p}, s)", "{p}.sort()",
    "{p} = np.sort({q})", "{p} = {q}.copy()", "{p} = {q}.reshape(-1)", "{p} = {q}.ravel()",
    "if {q}.size + {p}.size < 99: {p} = np.concatenate([{q}.ravel(), {p}.ravel()])",
    "{p} = np.where({q} > 0, {q}, 1.0)",
    "{p} = np.squeeze({q})", "{p} = np.atleast_2d({q})",
    "if {q}.size < 13 > {q}.ndim: {p} = np.broadcast_to({q}, (40,) + {q}.shape)",
    "if {q}.ndim < 4: {p} = {q}.reshape({q}.shape + (1,))", "{p} = np.flip({q})", "{p} = {q} @ {q}",
    "if {q}.size < 13: {p} = np.outer({q}, {q})",
    "for row in {a}: s = s * 0.5 + float(row[1])", "for row in {a}: row[2] = s",
    "s = max({p}.ravel().tolist())",
    "{p} = np.array({q})", "{p} = {q}.astype(np.float32)", "{p}[{q} > 1] = 0.5",
    "s = len({p}) + 0.5",
    "{a}[n], {a}[2] = {a}[2].copy(), {a}[n].copy()", "{p} = {a}[[1, 3]]",
    "{a}[[1, 3]] = {a}[[3, 1]]",
    "{p} = {q} + {a}[:, :1].T[0, :1]", "{p} = {q} ** 2", "{p} = np.float64(2) * {q}",
    "{p} = {q} <= s",
    # the block as a whole: recorded, evaluated, replaced
    "{a} = {b} * 0.5 + {a}", "{a} += {b}", "{a} *= 0.5", "{a}[...] = {b}",
    "{a}[1:] = {a}[:-1] * 0.5",
    "{a} = np.where({a} > s, {a}, {b})", "{a} = {b}.copy()", "{a} = {b}", "{a} = {b}.T + 0.0",
    "{a}[{a} > 5] = 1.0",
    "s = float({a}.sum()) / 200", "np.multiply({a}, 0.25, out={a})", "w = {a} + {b}",
    "w = {a} + {b}", "{a} = w * 0.125",
    # memory that other code has
    "x = np.asarray({a})", "x = numpy.asarray({p})", "x[...] = 3", "x[:1] += 1", "x = None",
    "x = numpy.asarray({a})",
    "{p} = np.asarray(x)", "x = memoryview({a}[3].copy())", "numpy.asarray({p})[...] += 0.5",
    "n = (n + 5) % 12",
    "n = numpy.int64(n)",
)  # fmt: skip


def program(seed: int) -> list[str]:
    draw = random.Random(seed)
    lines = []
    for _ in range(draw.randrange(8, 40)):
        a, b = draw.choice(BLOCKS), draw.choice(BLOCKS)
        p, q = draw.choice(PARTS), draw.choice(PARTS)
        k, i, e = draw.choice(KEYS), draw.choice(INNER), draw.choice(ELEMENTS)
        lines.append(draw.choice(STATEMENTS).format(a=a, b=b, p=p, q=q, k=k, i=i, e=e))
    return lines * draw.choice((1, 1, 2, 3))


def names(np: Any) -> dict[str, Any]:
    count = numpy.arange(SIDE * SIDE)
    found: dict[str, Any] = {"np": np, "numpy": numpy, "s": 0.5, "n": 4, "x": None, "w": None}
    for name, step in zip(BLOCKS, (7, 31), strict=True):
        found[name] = np.array((count * step % 97 * 0.25 - 10).reshape(SIDE, SIDE))
    for name in PARTS:
        found[name] = found["a"][3]
    return found


def run(np: Any, lines: list[str]) -> tuple[dict[str, Any], list[str]]:
    found, raised = names(np), []
    with numpy.errstate(all="ignore"):
        for line in lines:
            try:
                exec(line, found)
            except Exception as error:
                raised.append(f"{line}: {type(error).__name__}")
            else:
                raised.append(line)
    return found, raised


def differing(lines: list[str]) -> list[str]:
    """The names that have not NumPy's values at the end, and statements that raised otherwise."""
    (ours, first), (theirs, second) = run(lazyfuse, lines), run(numpy, lines)
    found = [f"{x} | {y}" for x, y in zip(first, second, strict=True) if x != y]
    for name in (*BLOCKS, *PARTS, "s", "x", "w"):
        x, y = numpy.asarray(ours[name]), numpy.asarray(theirs[name])
        if x.dtype != y.dtype or x.shape != y.shape:
            found.append(f"{name}: {x.dtype} {x.shape}, {y.dtype} {y.shape}")
        elif y.dtype != object and not numpy.array_equal(x, y, equal_nan=True):
            found.append(name)
    return found


@pytest.mark.parametrize("limit", [3, 20, 60, 140])
@campaign.rounds(250)
def test_random_programs(seeds: range, limit: int) -> None:
    with config.options(eager_below=limit):
        for seed in seeds:
            lines = program(seed)
            assert not differing(lines), (seed, lines)


# ------------------------------------------------------------------------------ one property each


def block() -> tuple[Any, Any]:
    """A large array with its values, and NumPy's beside it."""
    theirs = numpy.arange(300.0 * 200).reshape(300, 200)
    ours = lazyfuse.array(theirs)
    assert float(ours[0, 1]) == 1.0
    return ours, theirs.copy()


def test_a_part_is_a_part_whatever_it_is_made_of() -> None:
    m, _ = block()
    for part in (m[3], m[3][2:], m[:, 4].T, m[2:4].reshape(-1), m[5][::-1], next(iter(m))):
        assert part.base is m
        assert not part.flags.owndata
        before = float(part[0])
        part[0] = before + 1
        assert numpy.shares_memory(numpy.asarray(part), numpy.asarray(m))


def test_a_kept_part_keeps_no_old_memory_alive() -> None:
    m, _ = block()
    part = m[3]
    old = weakref.ref(m._storage.node.value)
    m[...] = lazyfuse.ones((300, 200)) * 2
    assert float(m.sum()) == 120000.0
    gc.collect()
    assert old() is None
    assert part.tolist() == [2.0] * 200


def test_work_that_was_recorded_before_a_write_reads_what_was_there() -> None:
    m, want = block()
    part = m[3]
    twice = m * 2
    part += 100
    m[4, 5] = -1.0
    numpy.testing.assert_array_equal(numpy.asarray(twice), want * 2)
    want[3] += 100
    want[4, 5] = -1.0
    numpy.testing.assert_array_equal(numpy.asarray(m), want)
    numpy.testing.assert_array_equal(numpy.asarray(part), want[3])


def test_a_part_stays_with_memory_that_other_code_has() -> None:
    m, _ = block()
    part = m[3]
    outside = numpy.asarray(m)
    part[0] = -5.0
    assert outside[3, 0] == -5.0
    outside[3, 1] = -6.0
    assert part[1] == -6.0
    held = numpy.asarray(part)
    del outside
    m *= 2
    held[2] = 1.0
    assert m[3, 2] == 1.0


@pytest.mark.parametrize("key", [numpy.int8(3), numpy.uint64(3), numpy.int64(-1), numpy.intp(0)])
def test_numpys_integers_are_keys(key: Any) -> None:
    m, want = block()
    assert m[key].tolist() == want[key].tolist()
    assert m[key, key] == want[key, key]
    assert m[2 : key + 9, key].tolist() == want[2 : key + 9, key].tolist()
    m[key, 1] = want[key, 1] = 7.0
    numpy.testing.assert_array_equal(numpy.asarray(m), want)


@pytest.mark.parametrize(
    "key", [numpy.True_, numpy.timedelta64(1, "s"), numpy.float64(1), 10**30, 300]
)
def test_other_keys_do_what_numpy_does(key: Any) -> None:
    m, want = block()
    outcomes = []
    for x in (m, want):
        try:
            outcomes.append(numpy.asarray(x[key]).tolist())
        except Exception as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("number", [numpy.float64(2), numpy.float32(3), numpy.int8(2), numpy.True_])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_numpys_numbers_and_arrays_beside_ours(number: Any, dtype: str) -> None:
    small, large = numpy.arange(1, 9, dtype=dtype), numpy.arange(1, 70001, dtype=dtype)
    operations: list[Callable[[Any, Any], Any]] = [
        lambda n, x: n * x, lambda n, x: x + n, lambda n, x: n / x, lambda n, x: x > n,
        lambda n, x: n == x, lambda n, x: n ** x[:3], lambda n, x: (n * x[:5]) @ x[:5],
    ]  # fmt: skip
    for theirs in (small, large):
        ours = lazyfuse.array(theirs)
        for operation in operations:
            for n in (number, theirs[:8] if theirs is small else theirs):
                if n is not number and operation in operations[-2:]:
                    continue
                x, y = operation(n, ours), operation(n, theirs)
                assert type(x) is lazyfuse.ndarray or numpy.ndim(y) == 0
                assert x.dtype == y.dtype
                numpy.testing.assert_array_equal(numpy.asarray(x), y)


def test_a_pending_block_whose_parts_are_read_in_a_loop_is_evaluated() -> None:
    m, want = block()
    m = m * 2
    rows = [m[k] for k in range(40)]
    assert m._storage.node.value is not None
    for k, row in enumerate(rows):
        numpy.testing.assert_array_equal(numpy.asarray(row), want[k] * 2)


def test_picks_and_writes_of_few_elements() -> None:
    m, want = block()
    keys: list[Any] = [
        [3, 4], [4, 3], numpy.array([5, 5, 6]), ([1, 2], [3, 4]), (slice(None, 3), [0, 2]),
        numpy.arange(300) % 7 == 0, (2, numpy.array([1, 1])), (numpy.array([[1], [2]]), [3, 4]),
    ]  # fmt: skip
    for at, key in enumerate(keys):
        x, y = m[key], want[key]
        numpy.testing.assert_array_equal(numpy.asarray(x), y)
        x[...] = -1.0  # a copy
        m[key] = want[key] = at + 0.5
        m[key] += 1
        want[key] += 1
        numpy.testing.assert_array_equal(numpy.asarray(m), want)
    for wrong in ([300], numpy.array([0, -301]), numpy.ones(299, bool), [[1, 2], [3]]):
        raised = []
        for x in (m, want):
            try:
                x[wrong] = 0.0
            except (IndexError, ValueError) as error:
                raised.append((type(error), str(error)))
        assert raised[0] == raised[1]


def test_rows_that_a_function_gives_as_views_are_parts() -> None:
    m, want = block()
    for function in (numpy.flip, numpy.atleast_2d, numpy.squeeze, numpy.ravel, numpy.transpose):
        ours = getattr(lazyfuse, function.__name__)(m[7])
        ours[...] = 3.0
        function(want[7])[...] = 3.0
        numpy.testing.assert_array_equal(numpy.asarray(m), want)


@pytest.mark.skipif(not COMPILED, reason="the record path is pure Python")
def test_a_table_of_real_views_drops_them_all() -> None:
    m, _ = block()
    parts = [m[k] for k in range(300)]
    table = m._storage.reals
    m *= 2
    float(m.sum())
    assert m._storage.reals is not table
    assert all(numpy.asarray(x)[0] == 400 * k for k, x in enumerate(parts))


def test_a_constant_array_whose_number_is_pending_is_kept() -> None:
    """Its number is read from a block that the evaluation of another array writes over."""
    with lazyfuse.options(eager_below=20):

        def program(np: Any) -> tuple[Any, ...]:
            a = np.array(numpy.arange(144.0).reshape(12, 12))
            p = a[3]
            np.multiply(a, 0.25, out=a)
            a = np.zeros((12, 12))
            p = np.array(p)
            s = p.ravel()[0] * 1.0
            p[...] = s
            q = np.sort(p * 2 - p)
            p[p > 1] = 0.5
            s = p.ravel()[0] * 1.0
            return p, q, s, a

        for ours, theirs in zip(program(lazyfuse), program(numpy), strict=True):
            assert numpy.array_equal(numpy.asarray(ours), theirs)


def test_a_product_of_vectors_is_written_through_its_memory() -> None:
    lines = ["np.negative(r, out=r)", "q = q @ q", "q = np.atleast_2d(q)"]
    lines += ["numpy.asarray(q)[...] += 0.5", "q = q @ q"]
    with config.options(eager_below=3):
        for _ in range(5):
            assert not differing(lines)
