"""Kernels that share rows run tile by tile: values, what is stored, when it is not done.

Test names end with the feature rows that they show.
"""

from __future__ import annotations

import ctypes
import dataclasses
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.arrays import recording
from lazyfuse.codegen.plan import chains
from lazyfuse.devices import cpu_figures
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.execution import program_tiers, tiled_run, tiles
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate
from tests import campaign
from tests.helpers.tile_watch import Watch, watching
from tests.pairwise import first

SHAPES = [(1, 40), (7, 129), (64, 33), (130, 300)]


@pytest.fixture
def watch(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Everything is recorded and compiled at once, tiles are tiny: those of the CPU, which alone
    has any."""
    found = watching(monkeypatch)
    monkeypatch.setattr(program_tiers, "COMPILE_ELEMENTS", 1)
    monkeypatch.setattr(tiles, "SHORTEST", 8)
    monkeypatch.setattr(tiles, "STAYS", 1 << 40)
    usual = cpu_figures.tuning()
    cpu_figures.use(dataclasses.replace(usual, tile_bytes=4096))
    evaluate.clear_plans()
    with np.options(eager_below=0, compile_after=0, threads_above=1):
        yield found
    cpu_figures.use(usual)
    evaluate.clear_plans()


def softmax(xp: Any, x: Any, axis: int) -> Any:
    e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)


def log_softmax(xp: Any, x: Any, axis: int) -> Any:
    s = x - xp.max(x, axis=axis, keepdims=True)
    return s - xp.log(xp.sum(xp.exp(s), axis=axis, keepdims=True))


def layer_norm(xp: Any, x: Any, axis: int) -> Any:
    centred = x - xp.mean(x, axis=axis, keepdims=True)
    variance = xp.mean(centred * centred, axis=axis, keepdims=True)
    return centred / xp.sqrt(variance + 1e-5) * 1.5 + 0.25


def rms_norm(xp: Any, x: Any, axis: int) -> Any:
    return x / xp.sqrt((x * x).mean(axis=axis, keepdims=True) + 1e-6)


def variance(xp: Any, x: Any, axis: int) -> Any:
    return xp.var(x, axis=axis)


def best_and_where(xp: Any, x: Any, axis: int) -> Any:
    return xp.argmax(x, axis=axis) * 2.0 + xp.max(x, axis=axis)


def share(xp: Any, x: Any, axis: int) -> Any:
    return x / xp.expand_dims(x.sum(axis=axis), axis)


# how tiles are cut hangs on the axis, what is in them on the function: one of each axis; the means
# of `layer_norm` are met in three axes below
CHAINS = [(share, 0), (best_and_where, 1), (layer_norm, 0), (layer_norm, 1)]
CHAINS += [(rms_norm, 1), (variance, 1), (best_and_where, 0), (rms_norm, 0), (share, 1)]
CHAINS += [(variance, 0)]


@pytest.mark.parametrize("chain", first(2, CHAINS))
def test_chains_have_numpys_bits_at_all_sizes_B6_A7(
    watch: Watch, chain: tuple[Callable[[Any, Any, int], Any], int]
) -> None:
    function, axis = chain
    rng = numpy.random.default_rng(5)
    for shape in SHAPES:
        x = rng.normal(size=shape)
        expected = function(numpy, x, axis)
        for threads in (1, 2):
            with np.options(threads=threads):
                got = function(np, np.array(x), axis).to_numpy()
            assert got.dtype == expected.dtype
            numpy.testing.assert_array_equal(got, expected, strict=True)
    # what the reductions of this one pass on is small: it stays in the cache without tiles
    assert not watch.tiles if function is best_and_where else max(watch.tiles) > 1


# the other axis is met by the exact chains above
INEXACT = [(softmax, 1), (softmax, 0), (log_softmax, 1), (log_softmax, 0)]


@pytest.mark.parametrize("chain", first(1, INEXACT))
def test_inexact_chains_have_the_bits_of_single_steps_B6(
    watch: Watch, chain: tuple[Callable[[Any, Any, int], Any], int]
) -> None:
    function, axis = chain
    rng = numpy.random.default_rng(5)
    for shape in SHAPES[1:]:
        x = rng.normal(size=shape)
        got = function(np, np.array(x), axis).to_numpy()
        with np.options(pipelining=False):
            alone = function(np, np.array(x), axis).to_numpy()
        numpy.testing.assert_array_equal(got, alone, strict=True)
        numpy.testing.assert_allclose(got, function(numpy, x, axis), rtol=1e-13)
    assert max(watch.tiles) > 1


@pytest.mark.parametrize("dtype", first(2, ["i8", "c16", "f4"]))
def test_other_dtypes_and_layouts_B6(watch: Watch, dtype: str) -> None:
    rng = numpy.random.default_rng(6)
    x = (rng.normal(size=(90, 41)) * 9).astype(dtype)

    def centre(xp: Any, x: Any) -> Any:
        return (x - xp.sum(x, axis=1, keepdims=True)) * xp.sum(x * x, axis=1)[:, None]

    layouts = [x, numpy.asfortranarray(x), x[::-1], numpy.repeat(x, 2, axis=1)[:, ::2], x.T]
    for each in layouts:
        got = centre(np, np.array(each, order="K")).to_numpy()
        with np.options(pipelining=False):
            alone = centre(np, np.array(each, order="K")).to_numpy()
        numpy.testing.assert_array_equal(got, alone, strict=True)
        assert got.strides == alone.strides
        if dtype != "c16":
            numpy.testing.assert_array_equal(got, centre(numpy, each), strict=True)
    assert watch.tiles


# one axis inside, and two with one between them that is kept
@pytest.mark.parametrize("axes", first(1, [(1, (0, 2)), (2, 0, (1, 2))]))
def test_three_axes_and_several_reduced_ones_B6(watch: Watch, axes: tuple[Any, ...]) -> None:
    cpu_figures.use(dataclasses.replace(cpu_figures.tuning(), tile_bytes=1 << 14))
    x = numpy.random.default_rng(7).normal(size=(6, 20, 31))
    for axis in axes:
        expected = layer_norm(numpy, x, axis)
        got = layer_norm(np, np.array(x), axis).to_numpy()
        numpy.testing.assert_array_equal(got, expected, strict=True)
    assert watch.tiles


@campaign.rounds(1)
def test_random_chains_B6(watch: Watch, seeds: range) -> None:
    def program(xp: Any, x: Any, y: Any, seed: int, axis: int) -> list[Any]:
        choose = random.Random(seed)
        values, outputs = [x, y], []
        for _ in range(3):
            v = choose.choice(values)
            name = choose.choice(["sum", "max", "min", "mean", "prod"])
            operand = v * 0.01 + 1.0 if name == "prod" else v
            q = getattr(xp, name)(operand, axis=axis, keepdims=True)
            found = choose.choice([v - q, v * q, q + v * 0.5, xp.abs(v) + q])
            outputs += choose.choice([[], [q], [found]])
            values.append(found)
        return [*outputs, values[-1]]

    rng = numpy.random.default_rng(8)
    for seed in seeds:
        for shape in ((65, 17), (9, 140), (33, 64)):
            x, y = rng.normal(size=shape), rng.normal(size=shape)
            for axis in (0, 1):
                expected = program(numpy, x, y, seed, axis)
                got = program(np, np.array(x), np.array(y), seed, axis)
                np.evaluate(*got)
                for ours, theirs in zip(got, expected, strict=True):
                    numpy.testing.assert_array_equal(ours.to_numpy(), theirs, strict=True)
    assert len(watch.tiles) > 3 * len(seeds)


def test_what_dies_inside_a_chain_is_never_stored_as_a_whole_B6_B7(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.array(numpy.random.default_rng(9).normal(size=(400, 100)))
    softmax(np, x, 1).to_numpy()
    taken = []
    device = devices.cpu()
    empty = device.empty

    def noted(shape: tuple[int, ...], dtype: Any) -> Any:
        taken.append(int(numpy.prod(shape)) * dtype.itemsize)
        return empty(shape, dtype)

    monkeypatch.setattr(device, "empty", noted)
    softmax(np, x, 1).to_numpy()
    assert sum(size >= 400 * 100 * 8 for size in taken) == 1, "the result, and nothing else"


def test_conditions_are_told_as_numpy_tells_them_B6_G(watch: Watch) -> None:
    x = numpy.random.default_rng(10).normal(size=(50, 30))
    x[7] = 0.0

    def program(xp: Any, x: Any) -> Any:
        return x / xp.sum(x * x, axis=1, keepdims=True)

    for _ in range(3):
        with warnings.catch_warnings(record=True) as expected:
            warnings.simplefilter("always")
            value = program(numpy, x)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            got = program(np, np.array(x)).to_numpy()
        assert [str(each.message) for each in told] == [str(each.message) for each in expected]
        assert {each.filename for each in told} == {__file__}
        numpy.testing.assert_array_equal(got, value, strict=True)


def test_operands_are_those_of_the_recording_and_may_change_after_it_B6_D(watch: Watch) -> None:
    x = numpy.random.default_rng(11).normal(size=(60, 20))
    expected = share(numpy, x[10:, ::2], 1)
    ours = np.array(x)
    recorded = share(np, ours[10:, ::2], 1)
    ours[...] = 3.0
    ours[10:] += recorded.sum()
    numpy.testing.assert_array_equal(recorded.to_numpy(), expected, strict=True)
    result = numpy.full((60, 20), 3.0)
    result[10:] += expected.sum()
    numpy.testing.assert_array_equal(ours.to_numpy(), result)
    assert watch.tiles


def test_switched_off_or_listened_to_B10(watch: Watch) -> None:
    x = numpy.random.default_rng(12).normal(size=(60, 20))
    expected = layer_norm(numpy, x, 1)
    off: list[dict[str, Any]] = [
        {"pipelining": False}, {"fusion": False}, {"validate": True}, {"compile_after": 99},
    ]  # fmt: skip
    for options in off:
        watch.tiles.clear()
        evaluate.clear_plans()
        with np.options(cache=False, **options):
            got = layer_norm(np, np.array(x), 1).to_numpy()
        numpy.testing.assert_array_equal(got, expected, strict=True)
        if "compile_after" not in options:
            assert not watch.tiles
    evaluate.clear_plans()
    with np.options(pipelining=False):
        assert "switched off" in str(np.explain(layer_norm(np, np.array(x), 1)))
    layer_norm(np, np.array(x), 1).to_numpy()
    assert "kernels 0 to 4 run tile by tile" in str(np.explain(layer_norm(np, np.array(x), 1)))
    assert watch.tiles


def test_a_host_call_may_stand_in_a_chain_B7(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    def doubled(row: int, _: int) -> int:
        rows, columns, source, target = (ctypes.c_int64 * 4).from_address(row)
        kind = ctypes.c_double * (rows * columns)
        seen.append(rows)
        kind.from_address(target)[:] = [2 * each for each in kind.from_address(source)]
        return 0

    def rule(sources: Any, result: Any, places: Any) -> int | None:
        return 0 if places == (0,) else None

    def make(call: Any, sources: Any, result: Any) -> tiled_run.TileCall:
        entry = ctypes.cast(doubled, ctypes.c_void_p).value
        assert entry is not None
        return tiled_run.TileCall(entry, result.shape)

    monkeypatch.setitem(chains.TILED, "test doubled", rule)
    monkeypatch.setitem(tiled_run.MAKERS, "test doubled", make)
    x = numpy.random.default_rng(13).normal(size=(70, 11))
    ours = np.array(x)
    y = ours - ours.max(axis=1, keepdims=True)
    z = recording.host("test doubled", lambda a: 2 * a, [y], y.shape, y.dtype)
    got = (z / z.sum(axis=1, keepdims=True)).to_numpy()
    expected = 2 * (x - x.max(axis=1, keepdims=True))
    numpy.testing.assert_array_equal(got, expected / expected.sum(axis=1, keepdims=True))
    assert sum(seen) == 70
    assert len(seen) > 1


# ------------------------------------------------------------------------------ several reductions


@pytest.mark.smoke
def test_reductions_of_the_same_data_are_one_pass_B6_A5() -> None:
    rng = numpy.random.default_rng(14)
    a, b = rng.normal(size=50_000), rng.normal(size=50_000)

    def program(xp: Any, a: Any, b: Any) -> Any:
        d = a - b
        return (d * d).sum(), a.mean(), xp.amin(d), xp.amax(d), (a * b).std()

    x, y = np.array(a), np.array(b)
    found = program(np, x, y)
    before = counters.totals().evaluations
    got = [float(each) for each in found]
    assert counters.totals().evaluations == before + 1
    assert got == [float(each) for each in program(numpy, a, b)]


def test_large_results_and_other_data_are_left_alone_A5() -> None:
    x, y = np.ones(50_000), np.ones(50_000)
    x[0], y[0] = 2.0, 3.0
    large, other, total = x + 1.0, y.max(), x.sum()
    assert float(total) == 50_001.0
    assert large._node is not None
    assert large._node.value is None
    assert float(other) == 3.0
    assert large[0] == 3.0


def test_nothing_is_computed_before_its_turn_where_conditions_are_handled_G() -> None:
    x = np.full(50_000, 1e308)
    total, least = x.sum(), x.min()
    with numpy.errstate(over="raise"):
        assert float(least) == 1e308
    with pytest.warns(RuntimeWarning, match="overflow"):
        float(total)


@pytest.mark.parametrize(("dtype", "count"), [("f8", 7), ("f8", 257), ("f4", 1025), ("f8", 70_000)])
def test_extremes_and_their_places_in_runs_of_all_lengths_B6(dtype: str, count: int) -> None:
    rng = numpy.random.default_rng(count)
    x = numpy.round(rng.normal(size=(3, count)) * 8).astype(dtype)
    for spoilt in (False, True):
        if spoilt:
            x[1, count // 2] = numpy.nan
        for axis in (1, None):
            with np.options(eager_below=0, compile_after=0, fusion=False):
                ours = np.array(x)
                for name in ("max", "argmin"):
                    expected = getattr(x, name)(axis=axis)
                    got = getattr(ours, name)(axis=axis)
                    numpy.testing.assert_array_equal(numpy.asarray(got), expected)


def test_warming_up_compiles_the_tiles_too_C10(watch: Watch) -> None:
    x = np.array(numpy.random.default_rng(15).normal(size=(120, 33)))

    def program() -> Any:
        return (x * 1.25 - x.mean(axis=1, keepdims=True)) * 0.5

    assert np.warm_up(program)
    before = devices.cpu().info()["programs"]["built"]
    with np.options(compile_after=99):
        program().to_numpy()
    assert devices.cpu().info()["programs"]["built"] == before
    assert watch.tiles
