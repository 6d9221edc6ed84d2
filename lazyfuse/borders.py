"""Where our values leave for code that knows nothing but NumPy: as NumPy's own.

Owns the conversion (`outside`), and the table of libraries that ask `isinstance(x, numpy.ndarray)`
in their public functions and do something else with what is none: there, our arrays are converted
on the way in. Such a library is met when it is imported, before or after lazyfuse; libraries that
convert what they get with `numpy.asarray` need nothing.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from lazyfuse.array import OURS, export, gather, ndarray
from lazyfuse.registry import THEIRS, builtin

_PAIRED: set[type] = {FunctionType, builtin, type, type(ndarray)}  # what may be in THEIRS
_FEW = 8  # a longer list is searched for values of ours by the set of its types

# ---------------------------------------------------------------------------------- conversion


def outside(value: Any) -> Any:
    """`value` with NumPy's arrays, numbers and functions in the place of ours, however nested."""
    kind = type(value)
    if kind is ndarray:
        return export(value)
    if kind in OURS:
        return gather(value)[()]
    if kind in (list, tuple):
        return _items(value)
    if kind is dict:
        return {key: outside(item) for key, item in value.items()}
    if kind is slice:
        return slice(outside(value.start), outside(value.stop), outside(value.step))
    if kind in _PAIRED:
        return THEIRS.get(value, value)
    return value


def register_type(kind: type) -> None:
    """Say that objects of type `kind` may stand for NumPy's in the registry."""
    _PAIRED.add(kind)


def _items(value: Any) -> Any:
    if len(value) > _FEW and not _may_hold_ours(set(map(type, value))):
        return value
    there = tuple(value)  # a finaliser or another thread may change a list meanwhile
    items = [outside(item) for item in there]
    if all(new is old for new, old in zip(items, there, strict=True)):
        return value
    return items if type(value) is list else tuple(items)


def _may_hold_ours(kinds: set[type]) -> bool:
    nested: set[type] = {list, tuple, dict, slice}
    return not kinds.isdisjoint(OURS | nested)


# -------------------------------------------------------------------------- libraries' functions


def _argument(value: Any) -> Any:
    """An argument on its way in: values are converted, and so is what functions will return."""
    kind = type(value)
    if kind in _SIMPLE:
        return value
    if kind in _CALLABLE and _is_the_users(value):
        return answering(value)
    return outside(value)


_SIMPLE: set[type] = {str, int, float, bool, type(None)}


_CALLABLE = (FunctionType, MethodType, functools.partial)


def _is_the_users(function: Any) -> bool:
    while type(function) is functools.partial:
        function = function.func
    package = str(getattr(function, "__module__", "")).partition(".")[0]
    return package not in _PACKAGES and type(function) in _CALLABLE


class answering:  # noqa: N801  # used as a decorator
    """A user's function whose answers become NumPy's. Pickles if the function does."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return outside(self.function(*args, **kwargs))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else answering(MethodType(self.function, instance))

    def __reduce__(self) -> Any:
        return answering, (self.function,)


def _entrance(function: Callable[..., Any]) -> Any:
    """A library's function that is given NumPy's arrays in the place of ours."""

    def enter(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            # `args` go to the user's own function, as they are
            kwargs = {k: x if k == "args" else _argument(x) for k, x in kwargs.items()}
        return function(*[_argument(value) for value in args], **kwargs)

    code = getattr(function, "__code__", None)
    if type(code) is CodeType:
        # the library tells its own frames from its user's by their file, when it warns
        own = enter.__code__.replace(
            co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, co_name=code.co_name
        )
        enter.__code__ = own
    made: Any = functools.wraps(function)(enter)
    made._entrance = True
    return made


_OPERATORS = frozenset(
    f"__{side}{name}__"
    for name in "add sub mul truediv floordiv mod pow matmul and or xor divmod".split()
    for side in ("", "r", "i")
)
_ENTERED = _OPERATORS | frozenset(
    f"__{name}__" for name in "init new call getitem setitem eq ne lt le gt ge contains".split()
)


_LOOKING_AROUND = frozenset(("eval", "query"))  # they read their caller's names


def adapt_class(kind: type, package: str) -> None:
    """Make entrances of the public methods and operators of a class and of its bases."""
    for each in kind.__mro__:
        if each.__module__.partition(".")[0] != package:
            continue
        for name, found in list(vars(each).items()):
            if name in _ENTERED or not (name.startswith("_") or name in _LOOKING_AROUND):
                made = _as_entrance(found)
                if made is not found:
                    _put(each, name, made)


def _put(kind: type, name: str, made: Any) -> None:
    try:
        setattr(kind, name, made)
    except (AttributeError, TypeError):  # a compiled class keeps what it has
        return


_CYTHON = "cython_function_or_method"  # each compiled module has a type of its own


def _as_entrance(found: Any) -> Any:
    if type(found) is FunctionType or type(found).__name__ == _CYTHON:
        return found if hasattr(found, "_entrance") else _entrance(found)
    if type(found) in (classmethod, staticmethod):
        inner = _as_entrance(found.__func__)
        return found if inner is found.__func__ else type(found)(inner)
    return found


def adapt_functions(module: ModuleType, names: Iterable[str]) -> None:
    """Make entrances of a module's functions, in that module's namespace."""
    for name in names:
        found = getattr(module, name, None)
        made = _as_entrance(found)
        if made is not found:
            setattr(module, name, made)


def _classes(module: ModuleType, names: Iterable[str]) -> list[type]:
    found = [getattr(module, name, None) for name in list(names)]
    return [each for each in found if isinstance(each, type)]


def _adapt_pandas(pandas: ModuleType) -> None:
    """The tables, columns, indices, groups and windows, and what makes or joins them."""
    adapt_functions(pandas, set(pandas.__all__) - _LOOKING_AROUND)
    adapt_functions(pandas.util, ["hash_array"])
    core: Any = pandas.core
    kinds = [*_classes(pandas, pandas.__all__), *_classes(pandas.arrays, vars(pandas.arrays))]
    kinds += _classes(core.groupby, ["DataFrameGroupBy", "SeriesGroupBy"])
    kinds += _classes(core.window, ["Rolling", "Expanding", "ExponentialMovingWindow"])
    for kind in [*kinds, *_classes(core.indexing, _INDEXERS)]:
        adapt_class(kind, "pandas")


_INDEXERS = ("_LocIndexer", "_iLocIndexer", "_AtIndexer", "_iAtIndexer")


def _adapt_h5py(h5py: ModuleType) -> None:
    """Files, groups, their attributes and data sets."""
    for name in ("File", "Group", "Dataset", "AttributeManager"):
        adapt_class(getattr(h5py, name), "h5py")


def _adapt_distance(distance: ModuleType) -> None:
    """What writes to `out`."""
    adapt_functions(distance, ["cdist", "pdist"])


def _adapt_search(selection: ModuleType) -> None:
    """What spreads out the values of parameters."""
    for name in ("ParameterGrid", "ParameterSampler"):
        adapt_class(getattr(selection, name), "sklearn")


def _adapt_torch(torch: ModuleType) -> None:
    """The function that shares NumPy's memory; `torch.tensor` and `as_tensor` take any array."""
    torch.from_numpy = _entrance(torch.from_numpy)  # type: ignore[attr-defined]


def _adapt_all(module: ModuleType) -> None:
    """The functions and classes that a package lists as public."""
    adapt_functions(module, module.__all__)
    for kind in _classes(module, module.__all__):
        adapt_class(kind, module.__name__.partition(".")[0])


ENTRANCES: dict[str, Callable[[ModuleType], None]] = {
    "h5py": _adapt_h5py,
    "json": lambda json: adapt_functions(json, ["dump", "dumps"]),
    "pandas": _adapt_pandas,
    "scipy.integrate": _adapt_all,
    "scipy.optimize": _adapt_all,
    "scipy.sparse.linalg": _adapt_all,
    "scipy.spatial.distance": _adapt_distance,
    "sklearn.model_selection": _adapt_search,
    "torch": _adapt_torch,
    "xarray": _adapt_all,
}
"""Libraries by name, each with the function that makes entrances of its public functions."""

_PACKAGES = {"lazyfuse", "numpy", *(name.partition(".")[0] for name in ENTRANCES)}


# -------------------------------------------------------------------------------------- imports


class _Loader:
    """A library's loader; once the library is there, its entrances are made."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the library's own loader."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """As the library's own loader, which is put back in its place."""
        spec = module.__spec__
        assert spec is not None
        spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _adapt(module)


def _adapt(module: ModuleType) -> None:
    """Make a library's entrances; one that has changed its ways is left as it is."""
    try:
        ENTRANCES[module.__name__](module)
    except AttributeError:
        return


class _Border:
    """The finder for the libraries in `ENTRANCES`."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The library's own specification with its loader exchanged; None for all others."""
        if name not in ENTRANCES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


def watch() -> None:
    """Make the entrances of libraries that are imported already, and of others when they are."""
    for name in ENTRANCES:
        module = sys.modules.get(name)
        if module is not None:
            _adapt(module)
    sys.meta_path.insert(0, _Border)
