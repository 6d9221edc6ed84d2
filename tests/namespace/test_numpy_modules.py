"""Names and modules: all of NumPy's are there, importable in every way, and import is cheap."""

from __future__ import annotations

import gc
import importlib
import inspect
import pickle
import subprocess
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.namespace import numpy_modules
from lazyfuse.registry import OURS, THEIRS

MODULES = ["", "linalg", "fft", "random", *numpy_modules.MODULES]


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def public(module: Any) -> list[str]:
    names = getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]
    return sorted(name for name in set(names) if hasattr(module, name))


@pytest.mark.filterwarnings("ignore:Importing from numpy.matlib:PendingDeprecationWarning")
@pytest.mark.filterwarnings("ignore:The chararray class:DeprecationWarning")  # NumPy 2.5
@pytest.mark.parametrize("path", MODULES)
def test_every_public_name(path: str) -> None:
    ours = importlib.import_module(f"lazyfuse.{path}".rstrip("."))
    theirs = importlib.import_module(numpy_modules.their_path(path))
    for name in public(theirs):
        found = getattr(ours, name)
        if isinstance(getattr(theirs, name), type) and issubclass(
            getattr(theirs, name), (np.generic, np.dtype, BaseException)
        ):
            assert found is getattr(theirs, name)
    assert set(public(theirs)) <= set(dir(ours))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ours.nonsense


def test_ways_to_import() -> None:
    code = """
    import lazyfuse.linalg, lazyfuse.lib.stride_tricks as tricks, lazyfuse.ma.core
    import lazyfuse as np
    from lazyfuse.random import default_rng
    from lazyfuse.fft import rfft
    from lazyfuse.polynomial import Polynomial
    from lazyfuse.polynomial.chebyshev import chebval
    from lazyfuse.exceptions import AxisError
    from lazyfuse.typing import NDArray
    from lazyfuse import *
    assert np.lib.stride_tricks is tricks and np.linalg is lazyfuse.linalg
    assert array is np.array and linalg is np.linalg and sum is np.sum
    """
    run(inspect.cleandoc(code))


def test_import_is_light() -> None:
    heavy = ("numba", "llvmlite", "numpy.ma", "numpy.polynomial", "numpy.testing", "numpy.f2py")
    loaded = run("import sys, lazyfuse; print(*sys.modules)").split()
    baseline = run("import sys, numpy; print(*sys.modules)").split()
    assert [name for name in heavy if name in loaded and name not in baseline] == []


def test_types_and_constants_are_numpys() -> None:
    for name in ("float64", "dtype", "pi", "nan", "newaxis", "floating", "bool", "True_", "int_"):
        assert getattr(lazyfuse, name) is getattr(np, name)
    assert lazyfuse.ndarray is ndarray
    assert lazyfuse.__version__ == np.__version__
    with pytest.raises(AttributeError, match=r"`np\.float` was a deprecated alias"):
        _ = lazyfuse.float


def signature(function: Any) -> Any:
    """None where there is none: NumPy tells those of its functions in C from 2.4 on."""
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def test_functions_introduce_themselves() -> None:
    for name in ("sum", "array", "concatenate", "zeros", "where", "take", "linalg.norm"):
        ours: Any = lazyfuse
        theirs: Any = np
        for part in name.split("."):
            ours, theirs = getattr(ours, part), getattr(theirs, part)
        assert ours.__name__ == theirs.__name__
        assert ours.__doc__ == theirs.__doc__
        assert signature(ours) == signature(theirs)
        assert OURS[theirs] is ours
        assert THEIRS[ours] is theirs
        if "." not in name:
            assert pickle.loads(pickle.dumps(ours)) is ours
    assert signature(ndarray.sum) == signature(np.ndarray.sum)  # type: ignore[attr-defined]


def test_builtins_do_not_bind() -> None:
    class Holder:
        make = lazyfuse.array
        sin = lazyfuse.sin

    assert Holder().make([1, 2]).tolist() == [1, 2]
    assert Holder().sin(0.0) == 0.0


def test_everything_takes_our_arrays() -> None:
    """Each function either works on an array of ours or refuses it as NumPy does its own."""
    skipped = {"info", "test", "show_config", "show_runtime", "save", "savez", "savez_compressed",
               "savetxt", "get_include", "set_printoptions", "seterr", "setbufsize", "source",
               "seterrcall", "byte_bounds"}  # fmt: skip
    for name in public(np):
        theirs, ours = getattr(np, name), getattr(lazyfuse, name)
        if name in skipped or isinstance(theirs, type) or not callable(theirs):
            continue
        results = []
        for function, array in ((theirs, np.array), (ours, lazyfuse.array)):
            values = array([[3.0, 1.0], [2.0, 4.0]])
            try:
                function(values)
                results.append(None)
            except Exception as error:
                results.append(type(error))
        assert results[0] == results[1], name


def test_additions() -> None:
    for name in ("explain", "report", "options", "accelerate", "evaluate", "cache_info", "devices"):
        assert name in dir(lazyfuse)
        assert callable(getattr(lazyfuse, name))
    x = lazyfuse.ones(1 << 16) + 1
    lazyfuse.evaluate(x)
    assert x._node is None or x._node.value is not None
    assert isinstance(lazyfuse.tracing, types.ModuleType)
    assert lazyfuse.cache_info()["plans"]["evaluations"] > 0


def test_a_name_that_numpy_warns_of_warns_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, old = types.ModuleType("numpy.char"), np.char

    def find(name: str) -> Any:
        if name == "array":  # as NumPy 2.5 does
            warnings.warn("will go", DeprecationWarning, stacklevel=2)
        return getattr(old, name)

    vars(theirs)["__getattr__"] = find
    monkeypatch.setitem(sys.modules, "numpy.char", theirs)
    ours: Any = types.ModuleType("lazyfuse.char")
    ours.__getattr__, _ = numpy_modules.filler("lazyfuse.char", "numpy.char")
    monkeypatch.setitem(sys.modules, "lazyfuse.char", ours)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            _ = ours.array
            _ = ours.upper
    assert [each.filename for each in told] == [__file__] * 3
    assert "upper" in vars(ours)


@pytest.mark.parametrize("name", ["sort", "argsort", "clip", "ndarray", "ufunc", "fft.fftfreq"])
def test_signatures_are_those_of_the_installed_numpy(name: str) -> None:
    ours: Any = lazyfuse
    theirs: Any = np
    for part in name.split("."):
        ours, theirs = getattr(ours, part), getattr(theirs, part)
    assert signature(ours) == signature(theirs)


def test_a_collection_may_look_names_up_meanwhile() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:  # as a finaliser that computes with a new name
            OURS[self] = found.append(0)

    found: list[int] = []
    ours, call = lambda x: x, lambda x: x
    threshold = gc.get_threshold()
    for count in (20, 100, 500):
        before = set(OURS)
        gc.collect()
        try:
            Cycle()
            gc.set_threshold(count)  # it is collected after as many allocations
            numpy_modules._put(ours, ours, call)
        finally:
            gc.set_threshold(*threshold)
            for name in set(OURS) - before:
                THEIRS.pop(OURS.pop(name), None)
        gc.collect()
    assert found
