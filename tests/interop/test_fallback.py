"""What runs in NumPy at once: containers, in-place functions, callbacks, counts, sharing."""

from __future__ import annotations

import io
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse import config
from lazyfuse.arrays.conversion import Kept, to_numpy
from lazyfuse.arrays.ndarray import ndarray, wrap
from lazyfuse.interop import fallback
from lazyfuse.runtime.events import numpy_calls
from tests.helpers.compare import MODES, both, mode

Pair = namedtuple("Pair", "first second")


@pytest.fixture(autouse=True)
def _forget_counts() -> None:
    numpy_calls.clear_counts()


def test_containers_are_searched() -> None:
    def look(value: Any) -> Any:
        return value

    look.__module__ = "numpy"
    ours = fallback.wrap_function(look)
    x = lazyfuse.ones(3)
    kept: Kept = [], []
    found = to_numpy({"a": [x, (1, x)], "b": slice(x.sum(), None)}, kept)
    assert type(found["a"][0]) is type(found["a"][1][1]) is np.ndarray
    assert [own is x for own in kept[1]] == [True, True]
    assert ours(x) is x
    assert type(ours([np.ones(2), Pair(np.ones(1), 2)])[1]) is Pair
    assert type(ours({"k": np.ones(2)})["k"]) is ndarray
    for untouched in ([1, 2, 3], ("a", "b"), {"k": 1}, list(range(100)), "text", None):
        assert to_numpy(untouched, ([], [])) is untouched


def test_classes_and_functions_are_exchanged() -> None:
    assert to_numpy([lazyfuse.ndarray, lazyfuse.ufunc, lazyfuse.sum, lazyfuse.add]) == [
        np.ndarray, np.ufunc, np.sum, np.add,
    ]  # fmt: skip
    both(lambda xp, x: xp.apply_along_axis(xp.sort, 0, x), np.eye(3)[::-1])
    both(lambda xp, x: xp.apply_over_axes(xp.max, x, 0), np.eye(3))


@pytest.mark.parametrize("eager_below", MODES)
def test_named_results(eager_below: int | None) -> None:
    with mode(eager_below):
        result = lazyfuse.linalg.svd(lazyfuse.eye(3))
        assert type(result).__name__ == "SVDResult"
        assert all(type(part) is ndarray for part in result)
        result = lazyfuse.unique_counts(lazyfuse.array([1, 1, 2]))
        assert result.counts.tolist() == [2, 1]


WRITERS: dict[str, Any] = {
    "copyto": lambda xp, x: xp.copyto(x, 5),
    "copyto masked": lambda xp, x: xp.copyto(x, [1, 2, 3], where=[True, False, True]),
    "copyto by name": lambda xp, x: xp.copyto(dst=x, src=x[::-1]),
    "put": lambda xp, x: xp.put(x, [0, 4], [7, 8]),
    "put_along_axis": lambda xp, x: xp.put_along_axis(x, xp.array([[0], [1], [2]]), 9, 1),
    "putmask": lambda xp, x: xp.putmask(x, x > 3, -1),
    "place": lambda xp, x: xp.place(x, x > 3, [10, 11]),
    "fill_diagonal": lambda xp, x: xp.fill_diagonal(x, [1, 2]),
    "nan_to_num": lambda xp, x: xp.nan_to_num(x, copy=False, nan=0.0),
    "out keyword": lambda xp, x: xp.cumsum(x, 1, out=x),
    "out position": lambda xp, x: xp.fix(x / 2, x),
    "take out": lambda xp, x: xp.take(x.copy(), [[2, 1, 0]] * 3, out=x),
    "shuffle": lambda xp, x: xp.random.RandomState(3).shuffle(x),
    "at": lambda xp, x: xp.add.at(x, ([0, 0], [1, 1]), 1),
    "refused": lambda xp, x: xp.copyto(x, "text"),
    "read only": lambda xp, x: xp.put(xp.broadcast_to(x, (3, 3)), 0, 1),
}


@pytest.mark.parametrize("name", WRITERS)
def test_functions_that_write(name: str) -> None:
    """The array, its views, and what was recorded from it before, are as in NumPy."""

    def call(xp: Any, x: Any) -> Any:
        before, view, part = x + 1, x.T, x[1]
        result = WRITERS[name](xp, x)
        return before, x, view, part, result if result is not x else "itself"

    both(call, np.arange(9.0).reshape(3, 3))
    both(lambda xp, x: [WRITERS[name](xp, x.T), x], np.arange(9.0).reshape(3, 3))


def test_counts_name_the_line() -> None:
    x = lazyfuse.ones(1 << 16) + 1
    for _ in range(3):
        lazyfuse.percentile(x, 50)
    found = numpy_calls.counts()
    ((name, file, line), number) = next(iter(found.items()))
    assert (name, number) == ("percentile", 3)
    assert Path(file) == Path(__file__)
    assert "percentile" in Path(__file__).read_text().splitlines()[line - 1]
    assert lazyfuse.fallbacks() == found
    numpy_calls.clear_counts()
    lazyfuse.percentile(lazyfuse.ones(3), 50)  # small arrays lose nothing
    assert numpy_calls.counts() == {}


def test_views_of_arguments_stay_views() -> None:
    def call(xp: Any, x: Any) -> Any:
        xp.diag(x)  # read-only
        flat = xp.einsum("ij->ji", x)
        flat[0, 1] = 7
        x[1, 0] = 8
        return x, flat

    both(call, np.arange(9.0).reshape(3, 3))


@pytest.mark.parametrize("eager_below", MODES)
def test_outside_memory_is_shared(eager_below: int | None) -> None:
    with mode(eager_below):
        memory = np.arange(6.0)
        shared = lazyfuse.asarray(memory)
        buffered = lazyfuse.frombuffer(memory)
        later = shared + 0
        memory[0] = 10
        assert (float(shared[0]), float(buffered[0]), float(later[0])) == (10, 10, 0)
        shared[1] = 11
        assert (memory[1], float(buffered[1])) == (11, 11)
        copied = lazyfuse.array(memory)
        memory[2] = 12
        assert float(copied[2]) == 2


def test_objects_strings_and_records_run_in_numpy() -> None:
    both(lambda xp: xp.array([1, "a", None], dtype=object) * 2)
    both(lambda xp: [xp.array(["b", "a"]).tolist(), xp.sort(xp.array(["b", "a"]))])
    both(lambda xp: xp.array(["2020-01-01"], "M8[D]") + xp.timedelta64(1, "D"))
    both(lambda xp: xp.array([(1, 2.0)], dtype=[("a", int), ("b", float)])["b"] + 1)
    both(lambda xp: xp.ones(2, "f4").astype(">f4") + 1)
    both(lambda xp: xp.longdouble(1) + xp.ones(2, "g"))


@pytest.mark.parametrize("eager_below", MODES)
def test_files(eager_below: int | None, tmp_path: Path) -> None:
    with mode(eager_below):
        x = lazyfuse.arange(6.0).reshape(2, 3)
        for path in (tmp_path / "x.npy", io.BytesIO()):
            lazyfuse.save(path, x)
            if isinstance(path, io.BytesIO):
                path.seek(0)
            loaded = lazyfuse.load(path)
            assert type(loaded) is ndarray
            assert loaded.tolist() == x.tolist()
        lazyfuse.savez(tmp_path / "x.npz", x=x, y=x + 1)
        with lazyfuse.load(tmp_path / "x.npz") as archive:
            assert type(archive["y"]) is ndarray
            assert (archive["y"] - archive["x"]).tolist() == [[1.0] * 3] * 2
        lazyfuse.savetxt(tmp_path / "x.txt", x)
        assert lazyfuse.loadtxt(tmp_path / "x.txt").tolist() == x.tolist()
        assert lazyfuse.genfromtxt(tmp_path / "x.txt").tolist() == x.tolist()
        x.tofile(tmp_path / "x.raw")
        assert lazyfuse.fromfile(tmp_path / "x.raw").tolist() == x.ravel().tolist()
        mapped = lazyfuse.load(tmp_path / "x.npy", mmap_mode="r")
        assert (mapped + 1).sum() == 21


def test_random_streams_are_numpys() -> None:
    def generators(xp: Any) -> Any:
        random = xp.random.default_rng(5)
        out = xp.zeros(3)
        random.random(out=out)
        x = xp.arange(8)
        random.shuffle(x)
        return [
            random.normal(size=(2, 2)), random.integers(0, 9, 5), random.choice(x, 3), out, x,
            random.permutation(x), random.permuted(x), random.permuted(x, out=x) is x, x,
            random.bytes(3), random.random(), random.uniform(xp.zeros(2), [1, 2]),
            isinstance(random, xp.random.Generator), len(random.spawn(2)),
        ]  # fmt: skip

    def legacy(xp: Any) -> Any:
        xp.random.seed(7)
        state = xp.random.get_state()
        first = xp.random.rand(3)
        xp.random.set_state(state)
        mine = xp.random.RandomState(7)
        mine.set_state(state)
        x = xp.arange(5)
        xp.random.shuffle(x)
        return first, xp.random.randn(2, 2), xp.random.randint(9), x, mine.rand(3), mine.normal()

    both(generators)
    both(legacy)
    both(lambda xp: xp.random.default_rng("text"))


def test_error_state() -> None:
    def ignored(xp: Any, x: Any) -> Any:
        with xp.errstate(divide="ignore", invalid="ignore"):
            y = x / xp.zeros(4)
        return y, xp.geterr()["divide"]

    def raised(xp: Any, x: Any) -> Any:
        with xp.errstate(all="raise"):
            return x / xp.zeros(4)

    def called(xp: Any, x: Any) -> Any:
        seen = []
        with xp.errstate(divide="call", call=lambda kind, flag: seen.append(kind)):
            xp.log(x - x)
        return seen

    @lazyfuse.errstate(divide="raise")
    def decorated(x: Any) -> Any:
        return lazyfuse.log(x)

    x = np.arange(4.0)
    both(ignored, x, warned=False)  # evaluation does not yet know what was ignored
    both(raised, x)
    both(called, x)
    both(lambda xp, x: x / xp.zeros(4), x)
    with config.options(eager_below=0), pytest.raises(FloatingPointError, match="in log"):
        decorated(lazyfuse.zeros(3))


def test_printing_passes_through() -> None:
    def call(xp: Any, x: Any) -> Any:
        with xp.printoptions(precision=2):
            return str(x), repr(x), xp.array2string(x, separator=";"), xp.array_repr(x)

    both(call, np.arange(3) / 7)


def test_numpy_functions_on_our_arrays() -> None:
    x = wrap(np.arange(4.0))
    for result in (
        np.sum(x[None], 1),
        np.concatenate([x, x]),
        np.sin(x),
        np.linalg.norm(x[None], axis=1),
    ):
        assert type(result) is ndarray
    assert np.shape(x) == (4,)
    np.testing.assert_allclose(x, [0, 1, 2, 3])
    np.testing.assert_array_equal(lazyfuse.ones(1), x[1:2])
    lazyfuse.testing.assert_allclose(x, x)
    with pytest.raises(AssertionError):
        lazyfuse.testing.assert_array_equal(x, x + 1)


BIG = np.random.default_rng(1).normal(size=(300, 200))


@pytest.mark.parametrize(
    "call",
    [
        lambda xp, x: xp.sort(x),
        lambda xp, x: xp.argsort(x, axis=0, kind="stable"),
        lambda xp, x: xp.searchsorted(x[0], x[1]),
        lambda xp, x: xp.take(x, x[0].astype(int) % 7, axis=1),
        lambda xp, x: xp.nonzero(x > 0.5),
        lambda xp, x: xp.unique(xp.round(x, 1), return_counts=True),
        lambda xp, x: xp.histogram(x, 7),
        lambda xp, x: xp.diagonal(x),
        lambda xp, x: xp.partition(x, 5, axis=0),
        lambda xp, x: xp.trace(x),
        lambda xp, x: xp.quantile(x, 0.3, axis=1),
        lambda xp, x: xp.sort(x, axis=5),
        lambda xp, x: xp.sort(x, "nothing"),
        lambda xp, x: xp.searchsorted(x, x),
    ],
)
@pytest.mark.parametrize("pending", [False, True])
def test_functions_on_evaluated_arrays_are_numpys(call: Any, pending: bool) -> None:
    def program(xp: Any, a: Any) -> Any:
        x = xp.array(a)
        if pending:
            x = x * 1.0
        else:
            np.asarray(x * 1.0)
        first = call(xp, x)
        return first, call(xp, x[::2]) if x.ndim == 2 else first

    both(program, BIG)


def test_views_that_numpy_gives_of_evaluated_arrays_are_views() -> None:
    x = lazyfuse.array(BIG)
    np.asarray(x * 1.0)
    diagonal = fallback.run(np.lib.stride_tricks.sliding_window_view, "window", (x[0], 5), {})
    assert type(diagonal) is ndarray
    x[0, 3] = 77.0
    assert diagonal[0, 3] == 77.0 == diagonal[3, 0]
