"""Memory shared with code that knows nothing of lazyfuse: what it changes is seen, by everybody.

Each program is written once and run with NumPy and with lazyfuse; the results must be equal.
"""

from __future__ import annotations

import copy
import ctypes
import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import lazyfuse
from lazyfuse import config

pytestmark = pytest.mark.smoke

N = 20_000


def real(seed: int = 0, size: int = N) -> Any:
    return numpy.random.default_rng(seed).uniform(1, 2, size)


def both(program: Callable[[Any, int], Any]) -> None:
    """Compare a program's results for small and big arrays, recorded and not."""
    for size, below in ((N, 16384), (50, 16384), (50, 0), (50, 10)):
        with config.options(eager_below=below):
            want, got = program(numpy, size), program(lazyfuse, size)
            assert len(want) == len(got)
            for first, second in zip(want, got, strict=True):
                numpy.testing.assert_array_equal(numpy.asarray(second), numpy.asarray(first))


# ------------------------------------------------------------------------ memory taken in


def test_an_input_changed_later_by_its_owner_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        owner = real(size=size)
        x = xp.asarray(owner)
        before = x * 2.0
        owner[3] = 100.0
        after = x * 2.0
        owner += 1.0
        return before, after, x, x.sum(), xp.array(owner)

    both(program)


def test_a_copied_input_is_private_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        owner = real(size=size)
        x = xp.array(owner)
        y = x + 1.0
        owner[:] = 0.0
        return x, y, x + y

    both(program)


def test_an_operand_changed_before_evaluation_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        x, other = xp.array(real(size=size)), real(1, size)
        y = x * other
        other[:] = -1.0
        z = other + x
        other[::2] = 5.0
        return y, z, xp.add(x, other)

    both(program)


def test_writes_to_shared_memory_reach_its_owner_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        owner = real(size=size)
        x = xp.asarray(owner)
        x[2:5] = 7.0
        seen = owner[2:6].copy()
        x *= 2.0
        x[::-1] += x
        xp.add(x, 1.0, out=x)
        return owner, x, seen

    both(program)


def test_views_of_shared_memory_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        owner = real(size=size).reshape(-1, 10)
        x = xp.asarray(owner.T)
        y = x[1:, ::-2]
        pending = y * 3.0
        y[...] = 4.0
        owner[0] = 9.0
        return owner, x, y, pending

    both(program)


def test_two_arrays_over_the_same_memory_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        owner = real(size=size)
        x, y = xp.asarray(owner), xp.asarray(owner[::-1])
        pending = y + 0.5
        x[:3] = 0.0
        again = y + 0.5
        y[0] = 8.0
        return x, y, pending, again, owner

    both(program)


def test_an_owner_that_goes_away_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        owner = real(size=size)
        x = xp.asarray(owner)
        y = x + 1.0
        del owner
        x[0] = 5.0
        x += y
        return x, y

    both(program)


def test_out_into_a_real_array_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        x, target = xp.array(real(size=size)), numpy.zeros(size)
        answer = xp.multiply(x, 2.0, out=target)
        numpy_sees = target.copy()
        xp.copyto(target[:5], 3.0)
        return answer, target, numpy_sees

    both(program)


def test_real_arrays_updated_with_ours_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        target, x = real(size=size), xp.array(real(1, size))
        target[:] = x * 2.0
        target[3:7] = x[3:7]
        target += numpy.asarray(x)
        return (target,)

    both(program)


# ------------------------------------------------------------------------ memory handed out


@pytest.mark.parametrize("export", [numpy.asarray, numpy.array, lambda x: numpy.asarray(x)[::-1]])
def test_exports_written_to_by_outsiders_A7(export: Callable[[Any], Any]) -> None:
    def program(xp: Any, size: int) -> Any:
        x = xp.array(real(size=size)) * 2.0
        handed = export(x)
        pending = x + 1.0
        handed[:4] = 99.0
        later = x + 1.0
        x[5] = -1.0
        seen = handed.copy()
        handed *= 2.0
        return x, pending, later, handed, seen

    both(program)


def test_exports_of_views_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        x = xp.array(real(size=size)).reshape(-1, 10) + 0.0
        handed = numpy.asarray(x[1:, ::2])
        y = x * 2.0
        handed[...] = 0.0
        x[0] = handed[0, 0] + 3.0
        x.T[2] += 1.0
        return x, y, handed, x.sum()

    both(program)


def test_exports_outlive_the_array_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        x = xp.array(real(size=size)) - 1.0
        handed = numpy.asarray(x)
        y = x[::2] * 2.0
        del x
        handed[0] = 44.0
        return handed, y

    both(program)


def test_an_array_is_private_again_when_nobody_holds_it_A7() -> None:
    x = lazyfuse.array(real()) + 1.0
    handed = numpy.asarray(x)
    y = x * 2.0
    del handed
    x[0] = 50.0
    z = x * 2.0
    want = real() + 1.0
    numpy.testing.assert_array_equal(y, want * 2.0)
    want[0] = 50.0
    numpy.testing.assert_array_equal(z, want * 2.0)


@pytest.mark.parametrize("kind", ["d", "i", "?", "f"])
def test_buffers_A7(kind: str) -> None:
    def program(xp: Any, size: int) -> Any:
        x = xp.array(real(size=size)).astype(kind)
        window = memoryview(x) if sys.version_info >= (3, 12) else x.data
        pending = x + x
        window[2] = window[4]
        later = x + x
        x[7] = window[3]
        assert window.shape == (size,)
        assert window[7] == window[3]
        assert window.format == numpy.dtype(kind).char
        return x, pending, later, window.tobytes() == numpy.asarray(x).tobytes()

    both(program)


def test_addresses_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        x = xp.array(real(size=size)) * 1.0
        address = x.ctypes.data
        ctypes.c_double.from_address(address + 8).value = 31.0
        y = x * 2.0
        interface = x.__array_interface__["data"][0]
        ctypes.c_double.from_address(interface + 16).value = 32.0
        return x, y, x * 3.0

    both(program)


def test_round_trips_share_memory_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        x = xp.array(real(size=size)) + 0.5
        back = xp.asarray(numpy.asarray(x))
        back[3] = 17.0
        y = x * 2.0
        x[4] = 18.0
        return x, back, y, numpy.shares_memory(numpy.asarray(x), numpy.asarray(back))

    both(program)


def test_equal_arrays_computed_together_share_no_memory_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        x = xp.array(real(size=size)) * 2.0
        y, z = xp.array(x), x.copy()
        shared = [numpy.shares_memory(a, b) for a, b in ((x, y), (y, z), (x, x[1:]), (x, x))]
        shared.append(xp.may_share_memory(y, z))
        y[0] = 1.0
        return shared, x, y, z

    both(program)


def test_numpy_functions_given_our_arrays_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        x = xp.array(real(size=size)) - 1.5
        target = xp.zeros(size)
        numpy.sqrt(abs(x), out=target)
        numpy.copyto(x[:5], 1.0)
        numpy.put(x, [7, 8], [3.0, 4.0])
        return (
            x,
            target,
            numpy.sort(x),
            numpy.concatenate([x, numpy.ones(3)]),
            numpy.add(numpy.ones(size), x),
            numpy.ones(size) + x,
            numpy.einsum("i,i->", x, x),
            numpy.linalg.norm(x),
            numpy.fft.rfft(x),
        )

    both(program)


def test_random_shuffles_in_place_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        x = xp.arange(size) * 1.0
        y = x + 0.0
        xp.random.default_rng(4).shuffle(x)
        y[...] = xp.random.default_rng(5).random(size)
        xp.random.default_rng(6).shuffle(y[::2])
        return x, y

    both(program)


# ------------------------------------------------------------------------ other libraries


def test_scipy_takes_our_arrays_F4() -> None:
    ndimage = pytest.importorskip("scipy.ndimage", reason="scipy is not installed")
    from scipy import linalg, optimize, signal, sparse, stats

    def program(xp: Any, size: int) -> Any:
        x = xp.array(real(size=size)) - 1.5
        image = x[: size // 10 * 10].reshape(-1, 10)
        return (
            ndimage.gaussian_filter(image * 2.0, 1.5),
            signal.convolve(x, xp.ones(5) / 5, mode="same"),
            linalg.norm(x),
            linalg.solve(xp.eye(3) * 2.0, x[:3]),
            stats.zscore(x),
            sparse.csr_matrix(image).sum(axis=0),
            optimize.minimize(lambda p: ((xp.asarray(p) - 2.0) ** 2).sum(), xp.zeros(2)).x,
        )

    both(program)


def test_pandas_takes_our_arrays_F4() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")

    def program(xp: Any, size: int) -> Any:
        x = xp.array(real(size=size)) * 2.0
        keys = xp.arange(size) % 3
        frame = pandas.DataFrame({"x": x.copy(), "key": keys})
        series = pandas.Series(x, copy=True)
        x[0] = 1e6
        frame["y"] = x + 1.0
        sums = frame.groupby("key")["y"].sum()
        numbers = xp.array(frame["x"]) + xp.asarray(series)
        return frame["x"], sums, numbers, series.rolling(3).mean().to_numpy()[5:9], x

    both(program)


def test_matplotlib_takes_our_arrays_F4() -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("agg")
    from matplotlib import pyplot

    def program(xp: Any, size: int) -> Any:
        x = xp.linspace(0, 10, size)
        y = xp.sqrt(x) * x
        figure, axes = pyplot.subplots()
        lines = axes.plot(x, y)
        axes.scatter(x[::10], y[::10])
        axes.imshow(y[: size // 10 * 10].reshape(-1, 10), aspect="auto")
        axes.hist(y, bins=7)
        axes.fill_between(x, y, y + 1)
        figure.savefig(io.BytesIO(), dpi=40)
        found = lines[0].get_xdata(), lines[0].get_ydata()
        pyplot.close(figure)
        return found

    both(program)


def test_pickles_and_copies_A7() -> None:
    def program(xp: Any, size: int) -> Any:
        x = xp.array(real(size=size)) + 1.0
        stored = pickle.loads(pickle.dumps(x))
        twin, deep = copy.copy(x), copy.deepcopy({"x": x})["x"]
        x[0] = -3.0
        file = io.BytesIO()
        numpy.save(file, x)
        file.seek(0)
        assert type(stored) is type(x)
        return x, stored, twin, deep, numpy.load(file), x.tobytes() == numpy.asarray(x).tobytes()

    both(program)
