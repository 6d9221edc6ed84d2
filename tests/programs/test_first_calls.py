"""What runs while a program is being compiled has the program's bits, and is replaced by it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse.codegen.table import ops
from lazyfuse.devices import registry
from lazyfuse.devices.base import Source
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.runtime.events import counters
from tests.pairwise import first

Array = np.ndarray[Any, np.dtype[Any]]
COUNT = 40_000  # elements of which even one operation is worth a compiled program
FUNCTIONS = [
    row.name
    for row in ops.TABLE.values()
    if row.kind == "map"
    and row.ufunc is not None
    and {"d->d", "dd->d"} & set(row.ufunc.types)
    and "f" not in row.exact
    and row.name not in row.aliases
    and hasattr(np, row.name)
]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 5e-324, 1.0, -1.0, 710.0, 1e-40]


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Any]:
    """The CPU, with a cache and plans of its own."""
    with lf.options(device="cpu", cache_dir=str(tmp_path), eager_below=0, plan_limit=0):
        yield registry.device("cpu")


@contextmanager
def blocked() -> Iterator[None]:
    """Compilers take for ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CPU, "compiles_ahead", lambda self: True)
        patch.setattr(CPU, "soon", lambda self, source: None)
        yield


def values(dtype: str, shape: tuple[int, ...] = (COUNT,), seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    count = int(np.prod(shape))
    found = generator.normal(0, 3, count)
    found[: count // 2] = generator.uniform(0.1, 1, count // 2)
    found[:: count // 12][: len(SPECIAL)] = SPECIAL
    with np.errstate(all="ignore"):
        if dtype[0] == "c":
            found = found + 1j * generator.permutation(found)
        return found.astype(dtype).reshape(shape)


def same(ours: Array, theirs: Array) -> None:
    """Equal in dtype, shape, memory order and bits; NaNs may differ in sign and payload."""
    assert (ours.dtype, ours.shape, ours.strides) == (theirs.dtype, theirs.shape, theirs.strides)
    a, b = (np.ascontiguousarray(each) for each in (ours, theirs))
    if a.dtype.kind == "c":
        a, b = a.view(a.real.dtype), b.view(b.real.dtype)
    if a.dtype.kind == "f":
        a, b = (np.where(np.isnan(each), np.nan, each) for each in (a, b))
    assert a.tobytes() == b.tobytes()


def languages(run: Callable[[], Any]) -> tuple[Any, set[str]]:
    before = counters.totals().languages.copy()
    found = run()
    return found, {
        name for name, count in counters.totals().languages.items() if count > before[name]
    }


def results(nodes: list[Any]) -> list[Array]:
    lf.evaluate(*nodes)
    return [np.asarray(each) for each in nodes]


def both(program: Callable[..., list[Any]], *inputs: Array) -> None:
    """What runs before programs are there has the bits of compiled programs."""

    def run() -> list[Array]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return results(program(*(lf.array(each) for each in inputs)))

    with blocked():
        ours, used = languages(run)
    assert used == {"numpy"}
    with lf.options(compile_after=0):
        expected, used = languages(run)
    assert "numba" in used
    for one, other in zip(ours, expected, strict=True):
        same(one, other)


# blocked NumPy and numba have one text for both dtypes: each function is met in one of them
@pytest.mark.parametrize(
    ("dtype", "part"),
    [
        ("f8", 0),
        ("f4", 1),
        pytest.param("f8", 1, marks=pytest.mark.long),
        pytest.param("f4", 0, marks=pytest.mark.long),
    ],
)
def test_functions_F11(device: Any, dtype: str, part: int) -> None:
    def program(x: Any, y: Any) -> list[Any]:
        return [
            getattr(lf, name)(x) if ops.TABLE[name].nin == 1 else getattr(lf, name)(x, y)
            for name in FUNCTIONS[part::2]
        ]

    assert len(FUNCTIONS) > 20
    both(program, values(dtype), values(dtype, seed=1))


@pytest.mark.parametrize("dtype", ["c16", "c8"])
def test_complex_products_F11(device: Any, dtype: str) -> None:
    def program(x: Any, y: Any, z: Any) -> list[Any]:
        return [x * y, x * x, lf.square(y), abs(x * y - x), x * z, (x * 2j + y) * 0.5, lf.abs(y)]

    both(program, values(dtype), values(dtype, seed=1), values("f4"))


def test_layouts_and_reductions_F11(device: Any) -> None:
    def program(x: Any, y: Any, k: Any) -> list[Any]:
        e = lf.exp(x - x.max(axis=1, keepdims=True))
        return [
            e / e.sum(axis=1, keepdims=True),
            lf.sin(x.T).sum(axis=0),
            lf.log(abs(x[::-1, ::-2])).sum(),
            lf.hypot(x, y[:1]) ** 1.5,
            lf.where(k > 2, lf.cos(k), lf.tanh(x)).argmax(axis=1),
            lf.power(x, k),
        ]

    k = np.random.default_rng(0).integers(0, 5, (200, 400)).astype("i4")
    both(program, np.tanh(values("f8", (200, 400))), values("f4", (200, 400)), k)


@pytest.mark.parametrize("dtype", first(1, ["f8", "f4"]))
def test_scalars_and_assignment_F11(device: Any, dtype: str) -> None:
    def program(x: Any) -> list[Any]:
        y = x.copy()
        y[1:-1] = lf.sqrt(abs(lf.sin(y[:-2]) + 0.25 * lf.exp(-abs(y[2:]))))
        y[::3] **= 1.7
        return [y, lf.arctan2(y, 0.5)]

    both(program, values(dtype))


def test_conditions_are_numpys_B9(device: Any) -> None:
    x = np.linspace(1, 2, COUNT)
    x[17] = 1e5
    texts = []
    for xp in (np, lf):
        with blocked(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            np.asarray(xp.exp(xp.array(x)) - 1)
            np.asarray(xp.log(xp.array(1.5 - x)) * 2)
            np.asarray(xp.sin(xp.array(x)) * 2)
        texts.append([(str(each.message), each.filename) for each in caught])
    assert texts[0] == texts[1] != []


def test_complex_products_have_one_order_of_rounding_F11(device: Any) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(1, 0.01, (300, 400)) + 1j * generator.normal(0, 0.01, (300, 400))

    def program(x: Any) -> list[Array]:
        return results([x.prod(axis=0), x.T.prod(axis=0), (x * 1.0).prod()])

    first = program(lf.array(x))
    for _ in range(2):
        for one, other in zip(program(lf.array(x)), first, strict=True):
            same(one, other)
    with blocked():
        for one, other in zip(program(lf.array(x)), first, strict=True):
            same(one, other)


def test_what_has_no_words_is_compiled_at_once(device: Any) -> None:
    theirs = values("c16")
    theirs = theirs[np.isfinite(theirs)]
    x = lf.array(theirs)
    with blocked():
        found, used = languages(lambda: np.asarray(lf.sign(x) + 1))
    assert used == {"numba"}
    assert np.allclose(found, np.sign(theirs) + 1)


def test_a_kernel_that_is_refused_keeps_its_bits_E2(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> Array:
        x = lf.array(np.linspace(0.1, 5, COUNT))
        return np.asarray(lf.exp(-x) * lf.sin(x))

    expected, used = languages(program)
    assert used == {"numba"}
    device.clear()
    real = CPU.compile

    def compile_(self: CPU, source: Source) -> Any:
        if source.language == "numba":
            return real(self, Source("none", "", "", 0, (), ()))  # no such language
        return real(self, source)

    monkeypatch.setattr(CPU, "compile", compile_)
    ours, used = languages(program)
    assert used == {"numpy"}
    same(ours, expected)


def test_programs_arrive_from_the_worker_F11(device: Any) -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(0.5, 2, 300_000)

    def program() -> Array:
        y = lf.array(x)
        return np.asarray(lf.exp(-y) * lf.sin(y) + lf.log(y))

    with lf.options(compile_ahead=True, plan_limit=1024):
        cpu: Any = registry.device("cpu")
        try:
            first, used = languages(program)
            assert used == {"numpy"}
            assert cpu.finish(60.0)
            second, used = languages(program)
            assert used == {"numba"}
            assert cpu.info()["programs"]["ahead"] >= 1
        finally:
            cpu._worker.close()
            cpu._worker = type(cpu._worker)(cpu._arrived, cpu.programs.lost)
    same(first, second)


def test_a_worker_that_is_lost_is_in_the_report_E2(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> Array:
        return np.asarray(lf.exp(-lf.array(np.linspace(0.1, 5, 300_000))))

    expected = program()
    device.clear()
    why = f"the compiler's process is lost, says {__name__}"
    with lf.options(compile_ahead=True):
        cpu: Any = registry.device("cpu")
        monkeypatch.setattr(cpu._worker, "trouble", why)
        found, used = languages(program)
    assert used == {"numba"}
    same(found, expected)
    assert counters.totals().fallbacks[why] == 1
    assert why in str(lf.report())
