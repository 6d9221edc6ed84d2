"""Adapters for libraries that test `isinstance(x, numpy.ndarray)` and treat other values otherwise.

Owns the table of these libraries, and the finder that adapts those imported after lazyfuse. An
adapter makes wrappers: the library's public functions test the types of their arguments first, and
convert values of ours (arguments.py). Python functions stay the same objects with other code
(entrance_code.py); a function of ours replaces a compiled function. Libraries that call
`numpy.asarray` on their arguments need no adapter. Adapters that only save the user a documented
remedy are made on request: `adapt`.
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
_CYTHON = "cython_function_or_method"  # each compiled module has its own type of that name


# ------------------------------------------------------------------------------------ functions


def _compiled(function: Any) -> Any:
    """The function that replaces a compiled function; it pickles as the original."""

    def enter(*args: Any, **kwargs: Any) -> Any:
        suspects = arguments.suspects()
        if suspects.any_of(args) or suspects.any_named(kwargs):
            args, kwargs = suspects.convert_all(args), suspects.convert_named(kwargs)
        return function(*args, **kwargs)

    made: Any = functools.wraps(function)(enter)
    made._entrance = True
    return made


def _enter(found: Any, skipped: int) -> bool:
    """Wrap a Python function, or the one that a compiled function wraps; whether it worked."""
    while type(found).__name__ == _CYTHON and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    if type(found) is not FunctionType:
        return False
    if not hasattr(found, "_entrance"):
        entrance_code.add(found, arguments.suspects(), skipped)
    return True


def adapt_class(kind: type, package: str, public: bool = True) -> None:
    """Wrap the operators and the public methods of a class and of its bases."""
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
        except (AttributeError, TypeError):  # a compiled class cannot be changed
            return


def adapt_functions(module: ModuleType, names: Iterable[str]) -> None:
    """Wrap a module's functions."""
    for name in names:
        _enter(getattr(module, name, None), 0)


def adapt_compiled(module: ModuleType, name: str) -> None:
    """Replace a compiled function in every module, since users may have imported it."""
    old = getattr(module, name)
    if hasattr(old, "_entrance"):
        return
    new = _compiled(old)
    new.__module__, new.__qualname__ = module.__name__, name  # the name in pickles
    modules: list[Any] = list(sys.modules.values())  # values may be of any type
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
    """Wrap tables, columns, indices, groups and windows, and the functions that make them."""
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
    """Wrap the functions and classes that a package lists as public."""
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
    "skimage.transform._warps": _functions_of("warp"),  # the package loads it on first use
    "sklearn.model_selection": _classes_of("ParameterGrid", "ParameterSampler"),
    "statistics": _adapt_all,
    "sympy.core.expr": _classes_of("Expr", public=False),
    # shares memory; `tensor` and `as_tensor` take any array
    "torch": lambda torch: adapt_compiled(torch, "from_numpy"),
    "xarray": _adapt_all,
}
"""Libraries by name, each with its adapter, the function that wraps its public functions."""


def _adapt_json(json: Any) -> None:
    """Let json write pending numbers where it writes NumPy's, which are `float64` only.

    json's C code passes them to `default`, as every unknown object. Its Python code, which serves
    `indent`, takes them for floats, and fails when it formats their digits.
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
"""Libraries with adapters on request: they cost other users time, or only save a remedy."""

arguments.KNOWN.update(name.partition(".")[0] for name in ENTRANCES)


def adapt(name: str) -> None:
    """Let a library that takes only NumPy's objects take ours: `adapt("json")`.

    From then on, in the whole process, `json.dumps` writes numbers that are not computed yet as it
    writes NumPy's. The libraries in `ENTRANCES` are adapted without a call. A library that is not
    imported yet is adapted when it is imported.
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

_waiting: set[str] = set()  # libraries that are not adapted yet


def _adapt(module: ModuleType) -> None:
    """Adapt a library; a version that the adapter does not fit stays unchanged."""
    name = module.__name__
    _waiting.discard(name)
    try:
        ENTRANCES[name](module)
    except AttributeError:
        return


def _adapt_those_waiting() -> None:
    """Adapt libraries that other loaders than ours have imported."""
    for name in list(_waiting):
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            _adapt(module)


class _Loader:
    """Runs a library's module with its own loader, then adapts the library."""

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
        """Run the module with the library's own loader, which is restored first."""
        spec: Any = module.__spec__
        if spec is not None and spec.loader is self:
            spec.loader = module.__loader__ = self._loader
        elif getattr(self._loader, "name", None) == module.__name__:
            vars(self._loader).pop("exec_module", None)
        self._run(module)
        if module.__name__ in ENTRANCES:
            _adapt(module)


def _attend(spec: ModuleSpec) -> None:
    """Arrange that the library is adapted once its module has run. It keeps its loader."""
    loader: Any = spec.loader
    if not hasattr(loader, "exec_module"):
        return
    if isinstance(getattr(loader.exec_module, "__self__", None), _Loader):
        return  # the loader serves many modules
    attending = _Loader(loader)
    try:
        if isinstance(loader, type):
            raise AttributeError
        loader.exec_module = attending.exec_module
    except AttributeError:  # the loader takes no new attributes
        spec.loader = attending  # type: ignore[assignment]


class _Finder:
    """A finder for the libraries in `ENTRANCES`: takes what other finders find, and adapts it."""

    def __init__(self) -> None:
        self._here = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The library's own specification; None for all other modules."""
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
    """Adapt libraries that are imported already, and others when they are imported.

    On an interpreter with unknown instructions, all libraries stay unchanged.
    """
    if versions.unknown_python():
        return
    _waiting.update(ENTRANCES)
    _adapt_those_waiting()
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
