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
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from lazyfuse import late_modules, versions
from lazyfuse.arrays.base import REAL
from lazyfuse.arrays.conversion import EXPORT, to_numpy
from lazyfuse.arrays.ndarray import OURS, ndarray
from lazyfuse.errors import ConfigurationError, message
from lazyfuse.interop import arguments, entrance_code, numba_arrays

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
        if not (suspects.any_of(args) or suspects.any_named(kwargs)):
            return function(*args, **kwargs)
        real, named = suspects.convert_all(args), suspects.convert_named(kwargs)
        given = (*zip(real, args, strict=True), *((named[key], kwargs[key]) for key in kwargs))
        result = function(*real, **named)
        if type(result) is tuple:
            return tuple([_given_back(each, given) for each in result])
        return _given_back(result, given)

    made: Any = functools.wraps(function)(enter)
    made._entrance = True
    return made


def _given_back(result: Any, given: Iterable[tuple[Any, Any]]) -> Any:
    """The argument of ours that a function returns, an array that it has filled say."""
    for real, value in given:
        if result is real and type(value) in OURS:
            return value
    return result


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
        with suppress(AttributeError, TypeError):  # a compiled class cannot be changed
            setattr(kind, name, made if function is found else type(found)(made))


def adapt_functions(module: ModuleType, names: Iterable[str]) -> None:
    """Wrap a module's functions."""
    for name in names:
        _enter(getattr(module, name, None), 0)


def adapt_compiled(functions: Iterable[tuple[ModuleType, str]]) -> None:
    """Replace compiled functions in every module, since users may have imported them."""
    made: dict[int, tuple[Any, Any]] = {}
    for module, name in functions:
        old = vars(module)[name] if name in vars(module) else getattr(module, name)
        if not hasattr(old, "_entrance") and id(old) not in made:
            new = _compiled(old)
            new.__module__, new.__qualname__ = module.__name__, name  # the name in pickles
            made[id(old)] = old, new
    modules: list[Any] = list(sys.modules.values())  # values may be of any type
    for each in modules:
        if isinstance(each, ModuleType) and not each.__name__.startswith("lazyfuse"):
            names = vars(each)
            for bound in [bound for bound, value in list(names.items()) if id(value) in made]:
                names[bound] = made[id(names[bound])][1]


def adapt_compiled_package(package: ModuleType) -> None:
    """Wrap all public functions of a package that is compiled, and the methods of its classes.

    A class that cannot be changed keeps its methods.
    """
    first = package.__name__
    modules = [each for name, each in list(sys.modules.items()) if name.partition(".")[0] == first]
    functions = []
    for module in modules:
        for name, found in list(vars(module).items()):
            if name.startswith("_"):
                continue
            if type(found) is BuiltinFunctionType or type(found).__name__ == _CYTHON:
                functions.append((module, name))
            elif isinstance(found, type) and found.__module__.partition(".")[0] == first:
                _adapt_compiled_class(found)
    adapt_compiled(functions)


def _adapt_compiled_class(kind: type) -> None:
    for name, found in list(vars(kind).items()):
        static = type(found) in (staticmethod, BuiltinFunctionType)
        function = found.__func__ if type(found) is staticmethod else found
        if not static and type(found).__name__ not in _METHODS:
            continue
        hidden = name.startswith("_") and name not in _ENTERED - {"__new__"}
        if hidden or hasattr(function, "_entrance"):
            continue
        try:
            setattr(kind, name, staticmethod(_compiled(function)) if static else _compiled(found))
        except (AttributeError, TypeError):  # a compiled class cannot be changed
            return


_METHODS = (MethodDescriptorType.__name__, WrapperDescriptorType.__name__, _CYTHON)


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


def _adapt_numba(numba: Any) -> None:
    """Enter our arrays with numba; `numba.stencil` asks for NumPy's class."""
    numba_arrays.adapt(numba)
    _enter(numba.stencils.stencil.StencilFunc.__call__, 1)


def _adapt_autograd(autograd: Any) -> None:
    """Register our arrays where autograd has registered NumPy's."""
    boxes, spaces = autograd.numpy_boxes, autograd.numpy_vspaces
    space = spaces.VSpace.mappings[REAL]
    for kind in OURS:
        boxes.ArrayBox.register(kind)
        spaces.VSpace.register(kind, space)


def _adapt_lambdify(lambdify: ModuleType) -> None:
    """Let `lambdify(..., np)` take `np` for NumPy, whose functions call ours for our arrays.

    SymPy prints for a module that it knows by name, and else falls back on Python's `math`.
    """
    entrance_code.add(lambdify.lambdify, arguments.module_suspects())


def _adapt_batches(collate: Any) -> None:
    """Let torch's loaders of data make batches of our arrays as of NumPy's."""
    collate.default_collate_fn_map.setdefault(ndarray, collate.collate_numpy_array_fn)


def _adapt_jax(jax: Any) -> None:
    """Enter our arrays in jax's tables of types, beside NumPy's."""
    core, dtypes, pxla = jax._src.core, jax._src.dtypes, jax._src.interpreters.pxla

    def real(x: Any) -> Any:
        return to_numpy(x, EXPORT)

    for kind in OURS:
        core.pytype_aval_mappings[kind] = lambda x: core.typeof(real(x))
        dtypes.register_canonicalize_value_handler(
            kind, lambda x: dtypes.canonicalize_value(real(x))
        )
        pxla.shard_arg_handlers[kind] = lambda xs, *more: pxla.shard_arg_handlers[REAL](
            [real(x) for x in xs], *more
        )


def _adapt_einops(backends: Any) -> None:
    """Enter our arrays in einops' table of types: their methods, and NumPy's functions, serve."""
    for kind in OURS:
        backends._type2backend[kind] = backends.NumpyBackend()


def _adapt_pytensor(tensor: Any) -> None:
    """Register our arrays beside NumPy's."""
    register = tensor._as_tensor_variable.register
    for kind in OURS:
        register(
            kind, lambda x, *args, **more: tensor.as_tensor(to_numpy(x, EXPORT), *args, **more)
        )


def _adapt_functions_in_python(module: ModuleType) -> None:
    """Wrap the public functions of a module that lists none; methods of its package call them."""
    adapt_functions(module, [name for name in vars(module) if not name.startswith("_")])


def _adapt_all(module: ModuleType) -> None:
    """Wrap the functions and classes that a package lists as public."""
    adapt_functions(module, module.__all__)
    for kind in _classes(module, module.__all__):
        adapt_class(kind, module.__name__.partition(".")[0])


def _adapt_sparse(sparse: ModuleType) -> None:
    """Wrap the functions, and what takes another operand of matrices and arrays, not the rest of
    their many methods. Other names load modules.
    """
    names = [name for name in sparse.__all__ if name in vars(sparse)]
    adapt_functions(sparse, names)
    for kind in _classes(sparse, names):
        adapt_class(kind, "scipy", public=False)
        for found in [each for base in kind.__mro__ for each in vars(base).values()]:
            if type(found) is FunctionType and "other" in found.__code__.co_varnames[1:2]:
                _enter(found, 1)


def _adapt_hulls(spatial: ModuleType) -> None:
    """Wrap the compiled classes that keep points, join others to them, and read their memory."""
    names = ("ConvexHull", "Delaunay", "HalfspaceIntersection", "Voronoi")
    for kind in _classes(spatial, names):
        _adapt_compiled_class(kind)


ENTRANCES: dict[str, Callable[[ModuleType], None]] = {
    "astropy.table": _classes_of("Table", "Column", "Row"),
    "astropy.units": _classes_of("UnitBase", "FunctionUnitBase", "StructuredUnit", "Quantity"),
    "autograd.numpy": _adapt_autograd,
    "einops._backends": _adapt_einops,
    "gymnasium.spaces": _adapt_all,
    "h5py": _classes_of("File", "Group", "Dataset", "AttributeManager"),
    "jax": _adapt_jax,
    "jax._src.numpy.array_methods": _classes_of("_IndexUpdateHelper"),
    "jax._src.numpy.indexing": _functions_of("rewriting_take"),
    "numba": _adapt_numba,
    "numexpr.necompiler": _functions_of("evaluate", "re_evaluate", "validate"),
    "pandas": _adapt_pandas,
    "polars": _adapt_all,
    "pyarrow.compute": _adapt_functions_in_python,
    "pytensor.tensor": _adapt_pytensor,
    "scipy.integrate": _adapt_all,
    "scipy.optimize": _adapt_all,
    "scipy.sparse": _adapt_sparse,
    "scipy.sparse.linalg": _adapt_all,
    "scipy.spatial": _adapt_hulls,
    "scipy.spatial.distance": _functions_of("cdist", "pdist"),  # they write to `out`
    "skimage.transform._warps": _functions_of("warp"),  # the package loads it on first use
    "sklearn.model_selection": _classes_of("ParameterGrid", "ParameterSampler"),
    "statistics": _adapt_all,
    "sympy.core.expr": _classes_of("Expr", public=False),
    "sympy.utilities.lambdify": _adapt_lambdify,
    # shares memory; `asarray` would take a buffer's bytes for single precision; `tensor` and
    # `as_tensor` take any array
    "torch": lambda torch: adapt_compiled([(torch, "asarray"), (torch, "from_numpy")]),
    "torch.utils.data._utils.collate": _adapt_batches,
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


ON_REQUEST: dict[str, Callable[[ModuleType], None]] = {
    "cv2": adapt_compiled_package,
    "json": _adapt_json,
    "pyarrow": adapt_compiled_package,
}
"""Libraries with adapters on request: they cost other users time, or only save a remedy."""

arguments.KNOWN.update(name.partition(".")[0] for name in ENTRANCES)


def adapt(name: str | None = None) -> None:
    """Let a library that takes only NumPy's objects take ours: `adapt("json")`; None: all of them.

    From then on, in the whole process, `json.dumps` writes numbers that are not computed yet as it
    writes NumPy's, and functions and classes of `cv2` and `pyarrow`, which are compiled, take
    arrays of ours as NumPy's. `python -m lazyfuse` says `adapt()` for its program. The libraries in
    `ENTRANCES` are adapted without a call. A library that is not imported yet is adapted when it is
    imported.
    """
    if name is None or name in ON_REQUEST:
        wanted = list(ON_REQUEST) if name is None else [name]
        arguments.KNOWN.update(wanted)
        attend({each: ON_REQUEST[each] for each in wanted})
    elif name not in ENTRANCES:
        names = ", ".join(sorted(ON_REQUEST))
        text = message("adapt", "unknown library", f"one of {names}", name, _HELP)
        raise ConfigurationError(text)


_HELP = "give other libraries x.to_numpy(), or float(x) for a number"


# -------------------------------------------------------------------------------------- imports

_attended: dict[str, Callable[[ModuleType], None]] = {}
"""Modules that are adapted when they are imported, each with the function that does it."""
_waiting: set[str] = set()  # those that are not adapted yet


def attend(adapters: Mapping[str, Callable[[ModuleType], None]]) -> None:
    """Adapt modules that are imported already, and others each time when they are imported."""
    _attended.update(adapters)
    _waiting.update(adapters)
    _adapt_those_waiting()
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _adapt(module: ModuleType) -> None:
    """Adapt a library. What the adapter misses in a version that it does not fit is told."""
    name = module.__name__
    _waiting.discard(name)
    try:
        _attended[name](module)
    except AttributeError as error:
        version = getattr(module, "__version__", "of another version")
        warnings.warn(
            f"[adapt] {name} {version} is not as lazyfuse knows it: {error}; some of its functions "
            "may refuse arrays of lazyfuse, or take them for lists: give them x.to_numpy()",
            RuntimeWarning,
            stacklevel=2,
        )


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
        if module.__name__ in _attended:
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
    """A finder for the modules in `_attended`: takes what other finders find, and adapts it."""

    def __init__(self) -> None:
        self._here = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The library's own specification; None for all other modules."""
        _adapt_those_waiting()
        if name not in _attended or getattr(self._here, "asking", None) == name:
            return None
        before, self._here.asking = getattr(self._here, "asking", None), name
        try:
            spec = late_modules.found_behind(self, name, path, target)
        finally:
            self._here.asking = before
        if spec is not None and spec.loader is not None:
            _attend(spec)
        return spec


def watch() -> None:
    """Adapt the libraries that need no request, now or when they are imported.

    On an interpreter with unknown instructions, all libraries stay unchanged.
    """
    if not versions.unknown_python():
        attend(ENTRANCES)
