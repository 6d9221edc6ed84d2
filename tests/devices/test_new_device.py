"""A device is one package and one line in `MODULES`; what it does not say has answers in base.py.

Nothing outside devices/ asks a device or a program which members it has: a scan of the sources.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.devices import base, registry
from lazyfuse.runtime.placement import devices
from tests.test_layers import FILES

TEXT = '''
"""A small device: it runs text over NumPy, one chunk after another."""

import numpy as np

from lazyfuse.devices.base import Device, DeviceError, Program, Traits

BITS = {"divide by zero": 1, "overflow": 2, "underflow": 4, "invalid value": 8}


def make():
    return Tiny()


class Tiny(Device):
    def __init__(self):
        self.traits = Traits("tiny", "cpu", 1, ("numpy",))
        self.known, self.launches = {}, 0

    def compile(self, source):
        if source not in self.known:
            names = {"np": np}
            exec(source.text, names)
            self.known[source] = TinyProgram(source, names[source.name], self)
        return self.known[source]

    def cached(self, source):
        return source in self.known

    def empty(self, shape, dtype):
        return np.empty(shape, dtype)


class Window:
    def __init__(self, array, offset, shape, strides):
        interface = dict(array.__array_interface__, shape=tuple(shape))
        address, fixed = interface["data"]
        interface["data"] = address + offset * array.itemsize, fixed
        interface["strides"] = tuple([stride * array.itemsize for stride in strides])
        self.array, self.__array_interface__ = array, interface


class TinyProgram(Program):
    def __init__(self, source, function, device):
        self.source, self.function, self.device = source, function, device

    def launch(self, launch):
        self.device.launches += 1
        raised = []
        with np.errstate(all="call", call=lambda kind, bit: raised.append(BITS[kind])):
            for shape, offsets in zip(launch.sizes.tolist(), launch.offsets.tolist()):
                views = [
                    np.asarray(Window(array, offset, shape, strides))
                    for array, offset, strides in zip(launch.arrays, offsets, launch.strides)
                ]
                bits = self.function(views, launch.scalars, lambda slot, *kind: np.empty(*kind))
                raised.append(bits or 0)
        return int(np.bitwise_or.reduce(raised)) if raised else 0
'''


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The device, found by its line."""
    (tmp_path / "tiny_device").mkdir()
    (tmp_path / "tiny_device" / "__init__.py").write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry.MODULES, "tiny", ("tiny_device", "one chunk after another"))
    with np.options(device="tiny"):
        yield devices.current()
    for found, name in ((registry._made, "tiny"), (sys.modules, "tiny_device")):
        del found[name]  # type: ignore[attr-defined]
    devices._found.clear()


def programs(np: Any, n: int) -> list[Any]:
    """What programs do, each as an array."""
    rng = numpy.random.default_rng(7)
    real, other = rng.standard_normal((n, 3)), rng.standard_normal((n, 3))
    a, b = np.array(real), np.array(other)
    grid = (a * b + 1.5).reshape(3, n)
    updated = a.copy()
    updated[1:] += b[:-1] * 2.0
    updated[::2] = 0.0
    running = a
    for turn in range(4):
        running = np.where(running > b, running - b, running * 0.5 + turn)
    found = [
        a * b + 1.5, np.sqrt(np.abs(a)) / 3, (a - b).sum(), (a * b).mean(axis=0), a.T @ b,
        np.maximum(a, b)[::-1, 1:], grid.max(axis=1), updated, a[a > 0.5], running,
        np.sort(a[:, 0]), np.cumsum(b[:, 1]), (a > b).any(axis=1), a.astype("f4") * 2,
        np.argmax(a * b),
    ]  # fmt: skip
    return [numpy.asarray(each) for each in found]


@pytest.mark.parametrize("n", [4, 30_000])
def test_programs_run_on_a_device_of_one_line(tiny: Any, n: int) -> None:
    for _ in range(3):  # planned, then run again
        for found, expected in zip(programs(np, n), programs(numpy, n), strict=True):
            assert found.dtype == expected.dtype
            numpy.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert tiny.traits.name == "tiny"
    assert (tiny.launches > 20) == (n > 4)  # small arrays are NumPy's


def test_its_conditions_are_reported(tiny: Any) -> None:
    values = numpy.arange(50_000.0)
    a = np.array(values)
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        found = numpy.asarray(1.0 / a + 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numpy.testing.assert_array_equal(found, 1.0 / values + 2.0)
    assert tiny.launches


def test_what_it_does_not_say_has_answers(tiny: Any) -> None:
    assert np.cache_info().keys() >= {"plans", "tables"}
    np.cache_clear()
    x = np.array(numpy.ones(50_000)) + 1.0
    assert "tiny" in str(np.explain(x))
    program = np.freeze(lambda x: x * 2.0 + 1.0, x=np.ones(50_000))
    program.warm_up()
    numpy.testing.assert_array_equal(numpy.asarray(program(x=x)), numpy.full(50_000, 5.0))
    entry = next(each for each in registry.devices() if each.name == "tiny")
    assert (entry.available, entry.reason) == (True, "one chunk after another")
    with np.options(threads=3, pool_limit=0, compile_ahead=False):
        assert float((x + 1.0).sum()) == 150_000.0


def test_a_minimal_device_answers_for_the_rest() -> None:
    null = registry.device("null")
    source = base.Source("numpy", "k", "", 1, (), ())
    assert not null.cached(source)
    assert null.soon(source) is null.compile(source)
    assert null.cached(source)
    assert not null.asynchronous
    assert not null.compiles_ahead()
    assert (null.memory, null.library, null.programs, null.buffers) == (None,) * 4
    assert null.finish()
    refusing = registry.device("raise")
    assert refusing.soon(source) is None


MEMBERS = {
    name
    for kind in (base.Device, base.Asynchronous, base.Program, base.RowProgram, base.Bound)
    for name in (*vars(kind), *kind.__annotations__)
    if not name.startswith("_")
} | {"threads", "work", "set_threads", "rows", "wait"}  # of the devices that there are
ABOUT = {"device", "cpu", "program", "pool", "devices", "registry"}


def test_nothing_outside_probes_devices() -> None:
    """Neither by a member's name nor of something that is called a device or a program."""
    wrong = []
    for module, path in FILES.items():
        if module.startswith("lazyfuse.devices."):
            continue
        probes = [node for node in ast.walk(ast.parse(path.read_text())) if _is_probe(node)]
        wrong += [f"{module}:{each.lineno}: {ast.unparse(each)}" for each in probes]
    assert wrong == []


def _is_probe(node: Any) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    if not called or node.func.id not in ("hasattr", "getattr", "setattr"):
        return False
    of, name = node.args[:2]
    names = {each.id for each in ast.walk(of) if isinstance(each, ast.Name)}
    names |= {each.attr for each in ast.walk(of) if isinstance(each, ast.Attribute)}
    member = isinstance(name, ast.Constant) and name.value in MEMBERS
    return bool(member or names & ABOUT)


def test_the_scan_finds_probes() -> None:
    texts = (
        "hasattr(x, 'wait')", "getattr(run.device, name, None)", "getattr(devices.cpu(), 'a')",
        "hasattr(y, 'entry')", "getattr(device, f'set_{name}')",
    )  # fmt: skip
    assert all(_is_probe(ast.parse(text).body[0].value) for text in texts)  # type: ignore[attr-defined]
