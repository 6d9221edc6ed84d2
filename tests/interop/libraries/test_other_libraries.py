"""What a program's other libraries see of lazyfuse: nothing, unless they get an array of ours."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.errors import ConfigurationError
from lazyfuse.interop import library_adapters


def said(code: str, *command: str) -> str:
    """What a program prints in a process of its own."""
    usual = {name: x for name, x in os.environ.items() if name != "LAZYFUSE_EAGER_BELOW"}
    run = [sys.executable, *(command or ("-c",)), textwrap.dedent(code)]
    done = subprocess.run(run, capture_output=True, text=True, env=usual)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------------------ installed ones


USER = "from scipy.optimize import curve_fit, minimize"
US = "import lazyfuse"


@pytest.mark.parametrize(
    "order",
    [(USER, US), (US, USER), ("import scipy.optimize", US, USER)],
    ids=["user first", "lazyfuse first", "scipy first"],
)
def test_the_order_of_imports_does_not_matter(order: tuple[str, ...]) -> None:
    """NaN in `xdata` raises wherever the user's name for the function came from (issue 15, 7b)."""
    pytest.importorskip("scipy", reason="scipy is not installed")
    lines = "\n".join(order)
    checks = """
import pickle, scipy.optimize
from scipy.optimize._minimize import minimize as inner
x = lazyfuse.array([1.0, float("nan")])
try:
    curve_fit(lambda x, a: a * x, x, [1.0, 2.0])
except ValueError as error:
    print(error)
print(minimize is inner is scipy.optimize.minimize is pickle.loads(pickle.dumps(minimize)))
print(pickle.loads(pickle.dumps(scipy.optimize.least_squares)) is scipy.optimize.least_squares)
"""
    assert said(lines + checks) == "array must not contain infs or NaNs\nTrue\nTrue\n"


NEIGHBOURS = """
    import json, pickle, warnings, sys
    {import}
    import pandas, scipy.optimize
    import numpy
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        table = pandas.DataFrame({{"x": numpy.arange(3.0)}})
        table["x"][table.x > 1] = 0  # notices that nobody else holds the column
        pandas.to_datetime(["13/01/2020"])
        scipy.optimize.curve_fit(lambda x, a, b, c: a + b + c, [1.0, 2, 3], [1.0, 2, 3])
        scipy.optimize.minimize(lambda x: x[0] ** 2, [1.0], method="Nelder-Mead", jac=len)
    print([(x.category.__name__, x.filename, x.lineno) for x in told])
    for bound in (table.groupby, pandas.DataFrame.groupby, pandas.Timedelta.__mul__, table.x.apply):
        pickle.loads(pickle.dumps(bound))
    def names():
        limit = 1
        return table.query("x > @limit").x.tolist(), table.eval("x + @limit").tolist()
    print(names())
    try:
        table.groupby("y")
    except KeyError as error:
        print([frame.f_code.co_name for frame, _ in __import__("traceback").walk_tb(
            error.__traceback__)])
    circle = []
    circle.append(circle)
    deep = []
    for _ in range(700):
        deep = [deep]
    print(len(json.dumps(deep)))
    try:
        json.dumps(circle)
    except ValueError as error:
        print(error)
    print(json.JSONEncoder.default.__module__, warnings.showwarning is warnings._showwarning_orig)
    print(type(json.__spec__.loader), type(pandas.__spec__.loader), vars(pandas.__loader__))
    class Odd(type):
        def __hash__(cls): raise RuntimeError
    print(pandas.isna(Odd("Kind", (), {{}})()))
"""


def test_libraries_are_as_without_us() -> None:
    """Warnings' lines, references, frames, tracebacks, pickles, loaders, json."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("scipy", reason="scipy is not installed")
    without, before = [
        said(NEIGHBOURS.format(**{"import": x})) for x in ("pass", "import lazyfuse")
    ]
    assert before == without
    assert "ChainedAssignmentError" in without or sys.version_info >= (3, 14)


def test_updates_do_not_hang_on_what_was_called_before() -> None:
    """Our ufuncs are made when they are looked up; an operator does not wait for that."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    code = """
    import pandas, lazyfuse
    x = lazyfuse.arange(3.0)
    x += pandas.Series([1.0, 2, 3])
    print(x.tolist())
    """
    assert said(code) == "[1.0, 3.0, 5.0]\n"


def test_units_of_astropy() -> None:
    units = pytest.importorskip("astropy.units", reason="astropy is not installed")
    x = lazyfuse.arange(3.0)
    for quantity in (units.m * x, x * units.m, x << units.m, units.mag * x):
        assert isinstance(quantity, units.Quantity)
        assert quantity.value.tolist() == [0, 1, 2]
    assert (np.ones(3) * units.dimensionless_unscaled + x).value.tolist() == [1, 2, 3]


def test_functions_that_numba_has_kept_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled for NumPy they take our arrays, and nothing of ours is kept with them."""
    (tmp_path / "kept.py").write_text(
        "import numba\n@numba.njit(cache=True)\ndef total(a):\n    return a.sum()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = """
    import numba
    import {} as np
    from kept import total
    print(total(np.arange(1000.0)), len(total.stats.cache_misses))
    """
    found = [said(code.format(name)) for name in ("numpy", "lazyfuse", "numpy")]
    assert found == ["499500.0 1\n", "499500.0 0\n", "499500.0 0\n"]


def test_spaces_of_gymnasium() -> None:
    spaces = pytest.importorskip("gymnasium.spaces", reason="gymnasium is not installed")
    assert spaces.MultiBinary(3).contains(lazyfuse.array([1, 0, 1], dtype=np.int8))
    assert lazyfuse.ones(2) in spaces.Box(0, 5, (2,), dtype=np.float64)


# --------------------------------------------------------------------------------- made here


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package that takes what is not NumPy's array for something else."""
    name = "neighbour_of_lazyfuse"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(
        "import numpy\n__all__ = ['is_numpys', 'Table']\n"
        "def is_numpys(x, *more, **named):\n"
        "    return all(isinstance(y, numpy.ndarray) for y in (x, *more, *named.values()))\n"
        "class Table:\n"
        "    def __getitem__(self, key):\n        return is_numpys(key)\n"
        "    @classmethod\n    def read(cls, x):\n        return is_numpys(x)\n"
        "    @staticmethod\n    def check(x):\n        return is_numpys(x)\n"
    )
    (tmp_path / name / "resource.txt").write_text("resource")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(library_adapters._attended, name, library_adapters._adapt_all)
    yield name
    sys.modules.pop(name, None)
    library_adapters._waiting.discard(name)


def works(module: Any) -> bool:
    x = lazyfuse.arange(3)
    table = module.Table()
    parts = (table[x], table.read(x), module.Table.check(x), module.is_numpys(x, x, y=x))
    return all(parts) and not module.is_numpys(3)


def test_a_library_gets_entrances_when_it_is_imported(library: str) -> None:
    module = importlib.import_module(library)
    assert works(module)
    before = module.is_numpys.__code__
    assert works(importlib.reload(module))
    assert module.is_numpys.__code__ is not before
    loader = module.__spec__.loader
    assert type(loader) is SourceFileLoader
    assert "exec_module" not in vars(loader)
    assert module.__loader__ is loader
    assert loader.get_data(f"{module.__path__[0]}/resource.txt") == b"resource"
    assert loader.is_package(library)


class Watching:
    """Another's hook: asks the other finders and puts a loader of its own around theirs."""

    def __init__(self, name: str, delegates: bool) -> None:
        self.name, self.delegates, self.seen = name, delegates, 0

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name or self in (busy := BUSY):
            return None
        self.seen += 1
        busy.append(self)
        try:
            if self.delegates:
                return importlib.util.find_spec(name)
            return PathFinder.find_spec(name, path, target)
        finally:
            busy.remove(self)


BUSY: list[Watching] = []


@pytest.mark.parametrize("place", [0, 1, None], ids=["in front", "behind", "before Python's"])
@pytest.mark.parametrize("delegates", [True, False], ids=["delegates", "answers"])
def test_other_finders_see_the_module(
    library: str, place: int | None, delegates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook: Any = Watching(library, delegates)
    finders = list(sys.meta_path)
    finders.insert(finders.index(PathFinder) if place is None else place, hook)
    monkeypatch.setattr(sys, "meta_path", finders)
    module = importlib.import_module(library)
    assert hook.seen == 1
    if place == 0 and not delegates:  # ours is not asked: the next import tells us
        library_adapters._waiting.add(library)
        assert importlib.util.find_spec("a_module_that_nobody_has") is None
    assert works(module)


def test_zipped_libraries(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.write(tmp_path / library / "__init__.py", f"{library}/__init__.py")
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path])
    module = importlib.import_module(library)
    assert "archive.zip" in str(module.__file__)
    assert works(module)


def test_lazy_imports_and_threads(library: str) -> None:
    spec = importlib.util.find_spec(library)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[library] = module
    assert spec.loader is not None
    spec.loader.exec_module(module)
    assert works(module)
    del sys.modules[library]
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(works(importlib.import_module(library))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [True] * 8


def test_a_library_that_imports_us_while_it_is_imported(library: str, tmp_path: Path) -> None:
    """It gets its entrances when it is there, not in the middle."""
    file = tmp_path / library / "__init__.py"
    file.write_text(
        "from lazyfuse.interop import library_adapters\n"
        "library_adapters._waiting.add(__name__)\nimport this_too\n" + file.read_text()
    )
    (tmp_path / "this_too.py").write_text("")
    try:
        assert works(importlib.import_module(library))
    finally:
        sys.modules.pop("this_too", None)


def test_compiled_functions_are_replaced_wherever_they_are_bound() -> None:
    """`torch.from_numpy`, had before lazyfuse and under other names; here, another function."""
    code = """
    import operator, pickle, sys, types
    torch = types.ModuleType("torch")
    torch.from_numpy = operator.pos
    torch.asarray = operator.neg
    sys.modules["torch"] = torch
    from torch import from_numpy
    kept = from_numpy
    import lazyfuse
    print(from_numpy is torch.from_numpy is kept, from_numpy.__name__)
    print(pickle.loads(pickle.dumps(from_numpy)) is torch.from_numpy)
    x = lazyfuse.arange(3.0)
    print(type(torch.from_numpy(x)), torch.from_numpy(-3), torch.asarray(x))
    """
    assert said(code) == "True pos\nTrue\n<class 'numpy.ndarray'> -3 [-0. -1. -2.]\n"


def test_a_version_that_an_adapter_does_not_fit_is_told(library: str) -> None:
    """And what the adapter did find is adapted."""

    def misfit(module: Any) -> None:
        library_adapters._adapt_all(module)
        library_adapters._classes_of("NotThere")(module)

    library_adapters._attended[library] = misfit
    with pytest.warns(RuntimeWarning, match="NotThere.*give them x.to_numpy"):
        module = importlib.import_module(library)
    assert works(module)


def test_json_is_adapted_on_request() -> None:
    code = """
    import json
    import lazyfuse as np
    x = np.arange(100000.0)
    print(json.dumps({"mean": x.mean()}))
    np.options(lazy_numbers=True)
    data = {"mean": x.mean(), "list": [x[1]]}
    try:
        json.dumps(data)
    except TypeError as error:
        print(error)
    np.adapt("json")
    np.adapt("json")
    print(json.dumps(data), json.dumps(data, indent=0).split())
    print(json.dumps(data, default=str), json.JSONEncoder(sort_keys=True).encode(data))
    for wrong in (x, x.astype("f4").mean()):
        try:
            json.dumps(wrong)
        except TypeError as error:
            print(error)
    circle = []
    circle.append(circle)
    for indent in (None, 1):
        try:
            json.dumps(circle, indent=indent)
        except ValueError as error:
            print(error)
    """
    text = '{"mean": 49999.5, "list": [1.0]}'
    assert said(code).splitlines() == [
        '{"mean": 49999.5}',
        "Object of type float64 is not JSON serializable",
        text + " ['{', '\"mean\":', '49999.5,', '\"list\":', '[', '1.0', ']', '}']",
        text + ' {"list": [1.0], "mean": 49999.5}',
        "Object of type ndarray is not JSON serializable",
        "Object of type float32 is not JSON serializable",
        "Circular reference detected",
        "Circular reference detected",
    ]


def test_programs_that_run_under_lazyfuse_have_json_adapted(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json\nimport numpy as np\nprint(json.dumps([np.arange(100000.0).mean()]))\n"
    )
    assert said(str(program), "-m", "lazyfuse") == "[49999.5]\n"


def test_unknown_libraries_are_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="unknown library: expected one of cv2, json, pyarrow, got 'js'"
    ):
        lazyfuse.adapt("js")  # type: ignore[attr-defined]
    lazyfuse.adapt("pandas")  # type: ignore[attr-defined]
    assert json.dumps([1]) == "[1]"


def test_einops_knows_our_arrays() -> None:
    einops = pytest.importorskip("einops", reason="einops is not installed")
    x = lazyfuse.arange(40_000.0).reshape(200, 200)
    turned = einops.rearrange(x, "a b -> b a")
    assert type(turned) is lazyfuse.ndarray
    assert np.array_equal(turned, np.asarray(x).T)
    assert einops.reduce(x, "a b -> a", "sum").shape == (200,)
