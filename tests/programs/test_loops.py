"""Loops: compiled once, flat in memory, flushed with reasons, NumPy's bits after many rounds."""

from __future__ import annotations

import resource
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.devices import registry
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.scheduling import evaluate, flush
from tests import campaign

# A million in a campaign; the memory of the loop must not depend on it.
OPERATIONS = campaign.count(24_000)


@pytest.fixture(autouse=True)
def fresh() -> None:
    counters.reset()


class Made:
    """How many structures were planned and programs made since some moment."""

    def __init__(self) -> None:
        self.before = self.now()

    def now(self) -> tuple[int, int, int]:
        pool: Any = registry.device().info()["programs"]  # type: ignore[attr-defined]
        misses = evaluate.plan_cache_info()["plan misses"]
        return misses, pool["built"], pool["loaded"]

    def since(self) -> tuple[int, ...]:
        """Plans, programs built, programs loaded."""
        pairs = zip(self.now(), self.before, strict=True)
        return tuple(after - before for after, before in pairs)


def resident() -> int:
    """Bytes of this process that are in memory now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def real(shape: Any, seed: int = 0) -> Any:
    return numpy.random.default_rng(seed).uniform(1, 2, shape)


# ----------------------------------------------------------------------------- compiled once


def rounds(body: Callable[[Any, Any, int], Any], count: int = 12) -> tuple[int, ...]:
    """Run a loop body with NumPy and lazyfuse; what was made after the third round."""
    plain, lazy = real(60_000), lazyfuse.array(real(60_000))
    made = Made()
    for k in range(count):
        if k == 3:
            made = Made()
        assert float(body(lazyfuse, lazy, k)) == float(body(numpy, plain, k))
    numpy.testing.assert_array_equal(lazy, plain)
    return made.since()


def test_a_loop_over_slices_compiles_once_B6() -> None:
    def body(xp: Any, x: Any, k: int) -> Any:
        part = x[k * 500 : k * 500 + 40_000]
        return (part * part + part).sum()

    assert rounds(body) == (0, 0, 0)


def test_a_loop_over_a_changing_number_compiles_once_B6() -> None:
    def body(xp: Any, x: Any, k: int) -> Any:
        return ((x + k * 0.25) * (x - float(k)) / (k + 1)).max()

    assert rounds(body) == (0, 0, 0)


def test_a_loop_over_growing_slices_compiles_once_B6() -> None:
    def body(xp: Any, x: Any, k: int) -> Any:
        return (x[: 30_000 + 1000 * k] * 2.0).min()

    assert rounds(body) == (0, 0, 0)


def test_a_loop_over_slices_written_in_place_compiles_once_B6() -> None:
    def body(xp: Any, x: Any, k: int) -> Any:
        x[k : k + 50_000] = x[k + 1 : k + 50_001] * 0.5 + k
        return x[k]

    assert rounds(body) == (0, 0, 0)


def test_a_loop_over_rows_of_a_matrix_compiles_once_B6() -> None:
    plain = real((12, 40_000))
    lazy = lazyfuse.array(plain)
    made = Made()
    for k in range(12):
        if k == 3:
            made = Made()
        lazy[k] = lazyfuse.sqrt(lazy[k]) * lazy[k - 1]
        plain[k] = numpy.sqrt(plain[k]) * plain[k - 1]
        assert float(lazy[k].sum()) == float(plain[k].sum())
    assert made.since() == (0, 0, 0)
    numpy.testing.assert_array_equal(lazy, plain)


# ----------------------------------------------------------------------------- flat in memory


def test_a_long_loop_keeps_memory_flat_U6() -> None:
    x = lazyfuse.array(real(20_000))
    rounds = max(OPERATIONS // 2, 9000)
    start = 0
    for k in range(rounds):
        x = x * 0.5
        x = x + 1.0
        if k == 3000:
            start = resident()
    assert resident() - start < 64 << 20
    numpy.testing.assert_allclose(x, 2.0, rtol=1e-15)
    assert sum(counters.totals().flushes.values()) > 1
    assert set(counters.totals().flushes) - {decisions.GATHER, decisions.EXPORT} <= {
        decisions.LOOP,
        decisions.NODES,
        decisions.BYTES,
    }


def test_a_long_loop_in_place_keeps_memory_flat_U6() -> None:
    x = lazyfuse.array(real(20_000))
    start = 0
    for k in range(max(OPERATIONS // 3, 6000)):
        x[1:] += x[:-1]
        x *= 0.5
        x[::2] = 1.0
        if k == 2000:
            start = resident()
    assert resident() - start < 64 << 20
    assert float(x[0]) == 1.0


def test_a_loop_of_dead_results_runs_nothing_U6() -> None:
    x = lazyfuse.array(real(20_000))
    with config.options(flush_nodes=500):
        for _ in range(2000):
            x * 2.0 + 1.0
    assert counters.totals().kernels <= 4
    assert float(x[0]) == real(20_000)[0]


def test_a_chain_of_many_operations_frees_without_recursion_U6() -> None:
    with config.options(flush_nodes=0, flush_bytes=0):
        x = lazyfuse.array(real(17_000))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flush, "WORTH_A_LAUNCH", 1 << 62)
            y = x
            for _ in range(OPERATIONS):
                y = y + 1.0
            last = weakref.ref(y._node)
            del y
    assert last() is None


def test_a_chain_of_many_operations_evaluates_without_recursion_U6() -> None:
    with config.options(flush_nodes=0, flush_bytes=0), pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "WORTH_A_LAUNCH", 1 << 62)
        y = lazyfuse.zeros(17_000)
        length = 3 * sys.getrecursionlimit()
        for _ in range(length):
            y = y + 1.0
        assert float(y[5]) == length


def test_flushes_are_logged_with_their_reasons_U6() -> None:
    x = lazyfuse.array(real(300_000))
    y = x
    for _ in range(400):
        y = y * 1.5
    del y
    assert counters.totals().flushes[decisions.LOOP] >= 1
    with config.options(flush_nodes=64):
        z = lazyfuse.array(real(20_000))
        kept = [z + float(k) for k in range(3)]
        for _ in range(200):
            z = z + 1.0
    assert (
        counters.totals().flushes[decisions.NODES] + counters.totals().flushes[decisions.LOOP] > 1
    )
    assert float(kept[2][0]) == real(20_000)[0] + 2.0


def test_held_inputs_are_flushed_by_bytes_U6() -> None:
    with config.options(flush_bytes=1 << 20, flush_nodes=0), pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "WORTH_A_LAUNCH", 1 << 62)
        total = lazyfuse.zeros(40_000)
        for k in range(300):
            total = total + lazyfuse.array(numpy.full(40_000, float(k)))
    assert counters.totals().flushes[decisions.BYTES] >= 1
    assert float(total[7]) == sum(range(300))


# ---------------------------------------------------------------------------- whole programs


def heat(xp: Any) -> Any:
    u = xp.zeros((160, 150))
    u[40:60, 40:60] = 100.0
    for _ in range(40):
        u[1:-1, 1:-1] += 0.1 * (
            u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        )
    return u


def heat_between_two_buffers(xp: Any) -> Any:
    u = xp.array(real((160, 150)))
    v = u.copy()
    for _ in range(30):
        v[1:-1, 1:-1] = (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]) * 0.25
        u, v = v, u
    return u


def life(xp: Any) -> Any:
    board = xp.array(numpy.random.default_rng(3).integers(0, 2, (140, 150)))
    for _ in range(25):
        near = sum(
            xp.roll(xp.roll(board, i, 0), j, 1)
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
            if (i, j) != (0, 0)
        )
        board = ((near == 3) | ((board == 1) & (near == 2))).astype(int)
    return board


def life_with_slices(xp: Any) -> Any:
    board = xp.array(numpy.random.default_rng(4).random((150, 140)) < 0.4)
    for _ in range(25):
        n = xp.zeros(board.shape, dtype="i1")
        n[1:] += board[:-1]
        n[:-1] += board[1:]
        n[:, 1:] += board[:, :-1]
        n[:, :-1] += board[:, 1:]
        n[1:, 1:] += board[:-1, :-1]
        n[:-1, :-1] += board[1:, 1:]
        n[1:, :-1] += board[:-1, 1:]
        n[:-1, 1:] += board[1:, :-1]
        board = (n == 3) | (board & (n == 2))
    return board


def bodies(xp: Any) -> Any:
    position = xp.array(real((140, 3), 5))
    speed = xp.zeros((140, 3))
    for _ in range(10):
        apart = position[None] - position[:, None]
        distance = xp.sqrt((apart * apart).sum(axis=-1)) + 0.1
        pull = (apart / (distance * distance * distance)[..., None]).sum(axis=1)
        speed += 0.001 * pull
        position = position + 0.001 * speed
    return position


def jacobi(xp: Any) -> Any:
    u = xp.array(real((140, 140), 6))
    for _ in range(200):
        fresh = u.copy()
        fresh[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        change = abs(fresh - u).max()
        u = fresh
        if change < 0.02:
            break
    return u


def means(xp: Any) -> Any:
    points = xp.array(real((9000, 2), 7))
    centres = points[:5].copy()
    for _ in range(8):
        squares = ((points[:, None, :] - centres[None]) ** 2).sum(axis=2)
        label = squares.argmin(axis=1)
        centres = xp.stack([points[label == k].mean(axis=0) for k in range(5)])
    return centres


def waves(xp: Any) -> Any:
    height, before = xp.zeros((140, 141)), xp.zeros((140, 141))
    height[70, 70] = 1.0
    for _ in range(60):
        after = 2 * height - before
        after[1:-1, 1:-1] += (
            0.2 * (height[:-2, 1:-1] + height[2:, 1:-1] + height[1:-1, :-2] + height[1:-1, 2:])
            - 0.8 * (height[1:-1, 1:-1])
        )
        after[0] = after[-1] = 0
        after[:, 0] = after[:, -1] = 0
        height, before = after, height
    return height


def sandpile(xp: Any) -> Any:
    grains = xp.full((140, 130), 5)
    for _ in range(30):
        over = grains >= 4
        if not over.any():
            break
        grains[over] -= 4
        grains[1:] += over[:-1]
        grains[:-1] += over[1:]
        grains[:, 1:] += over[:, :-1]
        grains[:, :-1] += over[:, 1:]
    return grains


def logistic(xp: Any) -> Any:
    data, target = xp.array(real((4000, 8), 8)) - 1.5, xp.array(real(4000, 9) > 1.4)
    weights = xp.zeros(8)
    for _ in range(20):
        score = (data * weights).sum(axis=1)
        guess = 0.5 * (score / (1 + abs(score)) + 1)
        weights -= 0.1 * (data * (guess - target)[:, None]).mean(axis=0)
    return weights


PROGRAMS = (
    heat,
    heat_between_two_buffers,
    life,
    life_with_slices,
    bodies,
    jacobi,
    means,
    waves,
    sandpile,
    logistic,
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_give_numpys_bits_U1_A6(program: Callable[[Any], Any]) -> None:
    want, got = program(numpy), program(lazyfuse)
    assert isinstance(got, lazyfuse.ndarray)
    assert got.dtype == want.dtype
    numpy.testing.assert_array_equal(numpy.asarray(got), want)


@pytest.mark.smoke
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_all_recorded_give_numpys_bits_A6(program: Callable[[Any], Any]) -> None:
    with config.options(eager_below=0):
        numpy.testing.assert_array_equal(numpy.asarray(program(lazyfuse)), program(numpy))


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_pass_validation_A6(program: Callable[[Any], Any]) -> None:
    with config.options(validate=True):
        numpy.testing.assert_array_equal(numpy.asarray(program(lazyfuse)), program(numpy))


@pytest.mark.parametrize("program", [heat, life_with_slices, waves])
def test_programs_plan_once_B6(program: Callable[[Any], Any]) -> None:
    for _ in range(3):  # what the folder of programs lacks is compiled when it is used again
        program(lazyfuse)
    made = Made()
    program(lazyfuse)
    assert made.since()[1:] == (0, 0)
    assert made.since()[0] <= 2
