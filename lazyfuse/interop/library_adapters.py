"""Libraries that ask `isinstance(x, numpy.ndarray)` and do something else with what is none.

Owns the table of them, and the finder that meets them when they are imported after lazyfuse. Each
gets entrances: its public functions test the types of their arguments first, and values of ours
are converted on the way in (arguments.py). Python functions stay the objects that they are, with
other code (entrance_code.py); compiled functions have a function of ours in their place. Libraries
that convert what they get with `numpy.asarray` need nothing. What only saves a remedy that the
documentation names has to be asked for: `adapt`.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

from lazyfuse import versions
from lazyfuse.arrays.conversion import EXPORT, to_numpy
from lazyfuse.arrays.ndarray import OURS
from lazyfuse.errors import ConfigurationError, message
from lazyfuse.interop import arguments, entrance_code
from lazyfuse.interop.import_hook import found_behind

_OPERATORS = frozenset(
    f"__{side}{name}__"
    for name in "add sub mul truediv floordiv mod pow matmul lshift and or xor divmod".split()
    for side in ("", "r", "i")
)
_ENTERED = _OPERATORS | frozenset(
    f"__{name}__" for name in "init new call getitem setitem eq ne lt le gt ge contains".split()
)
_CYTHON = "cython_function_or_method"  # each compiled module has a type of its own


# ------------------------------------------------------------------------------------ functions


def _compiled(function: Any) -> Any:
    """What stands in the place of a compiled function: pickles as that one."""

    def enter(*args: Any, **kwargs: Any) -> Any:
        suspects = arguments.suspects()
        if suspects.any_of(args) or suspects.any_named(kwargs):
            args, kwargs = suspects.convert_all(args), suspects.convert_named(kwargs)
        return function(*args, **kwargs)

    made: Any = functools.wraps(function)(enter)
    made._entrance = True
    return made


def _enter(found: Any, skipped: int) -> bool:
    """Make an entrance of a Python function, or of the one that a compiled function wraps."""
    while type(found).__name__ == _CYTHON and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    if type(found) is not FunctionType:
        return False
    if not hasattr(found, "_entrance"):
        entrance_code.add(found, arguments.suspects(), skipped)
    return True


def adapt_class(kind: type, package: str, public: bool = True) -> None:
    """Make entrances of the operators and the public methods of a class and of its bases."""
    for each in kind.__mro__:
        if each.__module__.partition(".")[0] != package:
            continue
        for name, found in list(vars(each).items()):
            if name in _ENTERED or (public and not name.startswith("_")):
                _adapt_member(each, name, found)


def _adapt_member(kind: type, name: str, found: Any) -> None:
    static = type(found) is staticmethod and name != "__new__"
    function = found.__func__ if type(found) in (classmethod, staticmethod) else found
    if _enter(function, 0 if static else 1):
        return
    if type(function).__name__ == _CYTHON and name in _ENTERED:
        made = _compiled(function)
        try:
            setattr(kind, name, made if function is found else type(found)(made))
        except (AttributeError, TypeError):  # a compiled class keeps what it has
            return


def adapt_functions(module: ModuleType, names: Iterable[str]) -> None:
    """Make entrances of a module's functions."""
    for name in names:
        _enter(getattr(module, name, None), 0)


def adapt_compiled(module: ModuleType, name: str) -> None:
    """Put a function of ours wherever modules have a compiled one: users may have imported it."""
    old = getattr(module, name)
    if hasattr(old, "_entrance"):
        return
    new = _compiled(old)
    new.__module__, new.__qualname__ = module.__name__, name  # where pickles look for it
    modules: list[Any] = list(sys.modules.values())  # anything may be there
    for each in modules:
        if isinstance(each, ModuleType) and not each.__name__.startswith("lazyfuse"):
            names = vars(each)
            for bound in [bound for bound, value in list(names.items()) if value is old]:
                names[bound] = new


def _classes(module: ModuleType, names: Iterable[str]) -> list[type]:
    found = [getattr(module, name, None) for name in list(names)]
    return [each for each in found if isinstance(each, type)]


# ---------------------------------------------------------------------------------- the table


def _adapt_pandas(pandas: ModuleType) -> None:
    """The tables, columns, indices, groups and windows, and what makes or joins them."""
    adapt_functions(pandas, pandas.__all__)
    adapt_functions(pandas.util, ["hash_array"])
    core: Any = pandas.core
    kinds = [*_classes(pandas, pandas.__all__), *_classes(pandas.arrays, vars(pandas.arrays))]
    kinds += _classes(core.groupby, ["DataFrameGroupBy", "SeriesGroupBy"])
    kinds += _classes(core.window, ["Rolling", "Expanding", "ExponentialMovingWindow"])
    for kind in [*kinds, *_classes(core.indexing, _INDEXERS)]:
        adapt_class(kind, "pandas")


_INDEXERS = ("_LocIndexer", "_iLocIndexer", "_AtIndexer", "_iAtIndexer")


def _classes_of(*names: str, public: bool = True) -> Callable[[ModuleType], None]:
    def adapt(module: ModuleType) -> None:
        for name in names:
            adapt_class(getattr(module, name), module.__name__.partition(".")[0], public)

    return adapt


def _functions_of(*names: str) -> Callable[[ModuleType], None]:
    return lambda module: adapt_functions(module, names)


def _adapt_all(module: ModuleType) -> None:
    """The functions and classes that a package lists as public."""
    adapt_functions(module, module.__all__)
    for kind in _classes(module, module.__all__):
        adapt_class(kind, module.__name__.partition(".")[0])


ENTRANCES: dict[str, Callable[[ModuleType], None]] = {
    "astropy.table": _classes_of("Table", "Column", "Row"),
    "astropy.units": _classes_of("UnitBase", "FunctionUnitBase", "StructuredUnit", "Quantity"),
    "gymnasium.spaces": _adapt_all,
    "h5py": _classes_of("File", "Group", "Dataset", "AttributeManager"),
    "pandas": _adapt_pandas,
    "polars": _adapt_all,
    "scipy.integrate": _adapt_all,
    "scipy.optimize": _adapt_all,
    "scipy.sparse.linalg": _adapt_all,
    "scipy.spatial.distance": _functions_of("cdist", "pdist"),  # they write to `out`
    "skimage.transform._warps": _functions_of("warp"),  # the package loads it when it is used
    "sklearn.model_selection": _classes_of("ParameterGrid", "ParameterSampler"),
    "statistics": _adapt_all,
    "sympy.core.expr": _classes_of("Expr", public=False),
    # shares memory; `tensor` and `as_tensor` take any array
    "torch": lambda torch: adapt_compiled(torch, "from_numpy"),
    "xarray": _adapt_all,
}
"""Libraries by name, each with the function that makes entrances of its public functions."""


def _adapt_json(json: Any) -> None:
    """Numbers that are not computed yet, where NumPy's would be written: `float64` alone.

    json's machine code hands them to `default`, as all that it does not know; its Python code,
    which writes with `indent`, takes them for floats, and fails when it wants their digits.
    """
    encoder = json.encoder
    write, quick = encoder._make_iterencode, encoder.c_make_encoder
    if hasattr(write, "_entrance"):
        return

    def known(default: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def theirs(o: Any) -> Any:
            value = to_numpy(o, EXPORT)
            return value if value is not o and isinstance(value, float) else default(value)

        return theirs

    def writing(markers: Any, default: Any, text: Any, indent: Any, digits: Any, *rest: Any) -> Any:
        written = lambda o: digits(to_numpy(o, EXPORT) if type(o) in OURS else o)
        return write(markers, known(default), text, indent, written, *rest)

    writing._entrance = True  # type: ignore[attr-defined]
    encoder._make_iterencode = writing
    if quick is not None:
        encoder.c_make_encoder = lambda markers, default, *rest: quick(
            markers, known(default), *rest
        )


ON_REQUEST: dict[str, Callable[[ModuleType], None]] = {"json": _adapt_json}
"""Libraries whose adapters cost their other users something, or save a remedy."""

arguments.KNOWN.update(name.partition(".")[0] for name in ENTRANCES)


def adapt(name: str) -> None:
    """Let a library that takes nothing but NumPy's own objects take ours: `adapt("json")`.

    From then on, for the whole process, `json.dumps` writes numbers that are not computed yet as
    it writes NumPy's. The libraries in `ENTRANCES` need no word. A library that is not imported
    yet is adapted when it is.
    """
    if name in ON_REQUEST:
        ENTRANCES[name] = ON_REQUEST[name]
        _waiting.add(name)
        _adapt_those_waiting()
    elif name not in ENTRANCES:
        names = ", ".join(sorted(ON_REQUEST))
        text = message("adapt", "unknown library", f"one of {names}", name, _HELP)
        raise ConfigurationError(text)


_HELP = "give other libraries numpy.asarray(x), or float(x) for a number"


# -------------------------------------------------------------------------------------- imports

_waiting: set[str] = set()  # libraries that have no entrances yet


def _adapt(module: ModuleType) -> None:
    """Make a library's entrances; one that has changed its ways is left as it is."""
    name = module.__name__
    _waiting.discard(name)
    try:
        ENTRANCES[name](module)
    except AttributeError:
        return


def _adapt_those_waiting() -> None:
    """Make the entrances of libraries that were imported by others than our loaders."""
    for name in list(_waiting):
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            _adapt(module)


class _Loader:
    """What runs a library's module: its own loader's function; then, its entrances are made."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._run = loader.exec_module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the library's own loader."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """As the library's own loader, which is as it was when the module runs."""
        spec: Any = module.__spec__
        if spec is not None and spec.loader is self:
            spec.loader = module.__loader__ = self._loader
        elif getattr(self._loader, "name", None) == module.__name__:
            vars(self._loader).pop("exec_module", None)
        self._run(module)
        if module.__name__ in ENTRANCES:
            _adapt(module)


def _attend(spec: ModuleSpec) -> None:
    """Have the library's entrances made once its module has run. The loader stays its own."""
    loader: Any = spec.loader
    if not hasattr(loader, "exec_module"):
        return
    if isinstance(getattr(loader.exec_module, "__self__", None), _Loader):
        return  # one loader for many modules
    attending = _Loader(loader)
    try:
        if isinstance(loader, type):
            raise AttributeError
        loader.exec_module = attending.exec_module
    except AttributeError:  # it has no room for that
        spec.loader = attending  # type: ignore[assignment]


class _Finder:
    """The finder for the libraries in `ENTRANCES`: what the others find, attended to."""

    def __init__(self) -> None:
        self._here = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The library's own specification; None for all others."""
        _adapt_those_waiting()
        if name not in ENTRANCES or getattr(self._here, "asking", None) == name:
            return None
        before, self._here.asking = getattr(self._here, "asking", None), name
        try:
            spec = found_behind(self, name, path, target)
        finally:
            self._here.asking = before
        if spec is not None and spec.loader is not None:
            _attend(spec)
        return spec


def watch() -> None:
    """Make the entrances of libraries that are imported already, and of others when they are.

    On an interpreter whose instructions are not known nothing is touched.
    """
    if versions.unknown_python():
        return
    _waiting.update(ENTRANCES)
    _adapt_those_waiting()
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
