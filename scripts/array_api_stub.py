"""The stubs of `lazyfuse.array_api`, from the tables of the standard's names and parameters.

write_stubs.py writes them. The types of parameters go by their names, which mean the same in every
function of the standard; the exceptions are told per function.
"""

from __future__ import annotations

import ast
from pathlib import Path

from lazyfuse.array_api import array_object, build, names

HEAD = """
import builtins
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple

import numpy as _np
"""
TYPES = """
_DType = _np.dtype[Any] | type[_np.generic]
_Number = builtins.complex
_Nested = _Number | Sequence[Any]
"""

KINDS = {
    **dict.fromkeys(["x", "condition", "indices", "sorter"], "_Array"),
    **dict.fromkeys(["x1", "x2"], "_Array | _Number"),
    **dict.fromkeys(["min", "max", "prepend", "append"], "_Array | _Number | None"),
    **dict.fromkeys(["keepdims", "descending", "stable", "include_initial", "endpoint"], "_Bool"),
    **dict.fromkeys(["invert", "upper", "full_matrices"], "_Bool"),
    **dict.fromkeys(["axis", "source", "destination", "shift"], "_Int | tuple[_Int, ...]"),
    **dict.fromkeys(["k", "offset", "num", "n_rows"], "_Int"),
    **dict.fromkeys(["n", "n_cols"], "_Int | None"),
    **dict.fromkeys(["fill_value", "start", "step", "stop"], "_Array | _Number"),
    **dict.fromkeys(["from_", "to", "type"], "_DType | _Array"),
    **dict.fromkeys(["d", "correction"], "_Float"),
    "arrays": "Sequence[_Array]",
    "arrays_and_dtypes": "_Array | _DType | _Number",
    "axes": "_Int | Sequence[_Int] | tuple[Sequence[_Int], Sequence[_Int]]",
    "copy": "_Bool | None",
    "device": "Any",
    "dtype": "_DType | None",
    "indexing": "Literal['xy', 'ij']",
    "kind": "_Str | _DType | tuple[_Str | _DType, ...]",
    "mode": "Literal['reduced', 'complete']",
    "norm": "Literal['backward', 'ortho', 'forward']",
    "obj": "_Array | _Nested | Any",
    "ord": "_Float | Literal['fro', 'nuc'] | None",
    "repeats": "_Int | _Array",
    "repetitions": "tuple[_Int, ...]",
    "rtol": "_Float | _Array | None",
    "s": "Sequence[_Int]",
    "shape": "_Int | tuple[_Int, ...]",
    "shapes": "tuple[_Int, ...]",
    "side": "Literal['left', 'right']",
}
"""Parameter -> type. Python's own names stand with an underscore: `bool` is a dtype here."""

BY_FUNCTION = {
    **{
        (name, x): "_Array"
        for name in "cross isin matmul outer searchsorted solve tensordot vecdot".split()
        for x in ("x1", "x2")
    },
    ("permute_dims", "axes"): "tuple[_Int, ...]",
    ("broadcast_arrays", "arrays"): "_Array",
    ("meshgrid", "arrays"): "_Array",
    ("from_dlpack", "x"): "Any",
    ("astype", "dtype"): "_DType",
    ("isdtype", "dtype"): "_DType",
    ("matrix_power", "n"): "_Int",
    ("fftfreq", "n"): "_Int",
    ("rfftfreq", "n"): "_Int",
    ("diff", "n"): "_Int",
    ("broadcast_to", "shape"): "tuple[_Int, ...]",
    ("reshape", "shape"): "tuple[_Int, ...]",
    ("expand_dims", "axis"): "_Int",
    ("unstack", "axis"): "_Int",
    ("argsort", "axis"): "_Int",
    ("sort", "axis"): "_Int",
    ("concat", "axis"): "_Int | None",
    ("stack", "axis"): "_Int",
}

RESULTS = {
    **dict.fromkeys(["broadcast_arrays", "meshgrid", "nonzero", "unstack"], "tuple[_Array, ...]"),
    **dict.fromkeys(["can_cast", "isdtype"], "_Bool"),
    "broadcast_shapes": "tuple[_Int, ...]",
    "result_type": "_np.dtype[Any]",
    "finfo": "_FloatInfo",
    "iinfo": "_IntegerInfo",
    "__array_namespace_info__": "Any",
    "unique_all": "_UniqueAll",
    "unique_counts": "_UniqueCounts",
    "unique_inverse": "_UniqueInverse",
    "eig": "_Eig",
    "eigh": "_Eig",
    "qr": "_QR",
    "slogdet": "_Slogdet",
    "svd": "_SVD",
}
"""Function -> what it gives; all others give one array."""

TUPLES = {
    "_UniqueAll": "values indices inverse_indices counts",
    "_UniqueCounts": "values counts",
    "_UniqueInverse": "values inverse_indices",
    "_Eig": "eigenvalues eigenvectors",
    "_QR": "Q R",
    "_Slogdet": "sign logabsdet",
    "_SVD": "U S Vh",
}
INFO = """
class _FloatInfo:
    bits: _Int
    eps: _Float
    max: _Float
    min: _Float
    smallest_normal: _Float
    dtype: _np.dtype[Any]

class _IntegerInfo:
    bits: _Int
    max: _Int
    min: _Int
    dtype: _np.dtype[Any]
"""
PROPERTIES = {
    "dtype": "_np.dtype[Any]",
    "device": "Any",
    "ndim": "_Int",
    "shape": "tuple[_Int, ...]",
    "size": "_Int",
    "T": "_Array",
    "mT": "_Array",
}
METHODS = """
    def __array_namespace__(self, /, *, api_version: _Str | None = None) -> Any: ...
    def to_device(self, device: Any, /, *, stream: Any = None) -> _Array: ...
    def to_numpy(self) -> _np.ndarray[Any, _np.dtype[Any]]: ...
    def __getitem__(self, key: Any, /) -> _Array: ...
    def __setitem__(self, key: Any, value: _Array | _Number, /) -> None: ...
    def __iter__(self) -> Iterator[_Array]: ...
    def __len__(self) -> _Int: ...
    def __array__(self, dtype: Any = None, *, copy: Any = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[Enum | _Int, _Int]: ...
    def __dlpack__(self, *, stream: Any = None, max_version: tuple[_Int, _Int] | None = None,
                   dl_device: tuple[Any, _Int] | None = None, copy: _Bool | None = None) -> Any: ...
"""
PLAIN = {"bool": "_Bool", "int": "_Int", "float": "_Float", "str": "_Str"}


def _parameters(name: str, parameters: str) -> str:
    """The standard's parameters with their types."""
    (function,) = ast.parse(f"def f{parameters}: ...").body
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    pairs = [*zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    positional = [*given.posonlyargs, *given.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
    pairs += zip(positional, [*missing, *given.defaults], strict=True)
    for each, default in pairs:
        each.annotation = ast.parse(_kind(name, each.arg, default), mode="eval").body
    if given.vararg is not None:
        kind = _kind(name, given.vararg.arg, None)
        given.vararg.annotation = ast.parse(kind, mode="eval").body
    return ast.unparse(given)


def _kind(name: str, parameter: str, default: ast.expr | None) -> str:
    found = BY_FUNCTION.get((name, parameter), KINDS[parameter])
    is_none = isinstance(default, ast.Constant) and default.value is None
    return f"{found} | None" if is_none and "None" not in found and found != "Any" else found


def _functions(table: str) -> str:
    return "".join(
        f"def {name}({_parameters(name, parameters)}) -> {RESULTS.get(name, '_Array')}: ...\n"
        for name, parameters in names.functions(table).items()
    )


def _array() -> str:
    """The class of the standard's arrays; the operators are those of the product's own lists."""
    lines = [f"    @property\n    def {name}(self) -> {kind}: ...\n"
             for name, kind in PROPERTIES.items()]  # fmt: skip
    for word in array_object._ARITHMETIC:
        lines += [f"    def __{first}{word}__(self, other: _Array | _Number, /) -> _Array: ...\n"
                  for first in ("", "r", "i")]  # fmt: skip
    for word in array_object._COMPARISONS:
        override = "  # type: ignore[override]" if word in ("eq", "ne") else ""
        lines.append(
            f"    def __{word}__(self, other: _Array | _Number, /) -> _Array: ...{override}\n"
        )
    lines += [f"    def __{word}__(self) -> _Array: ...\n" for word in array_object._UNARY]
    for name in array_object._CONVERSIONS:
        kind = {"__index__": "int"}.get(name, name.strip("_"))
        lines.append(f"    def {name}(self) -> builtins.{kind}: ...\n")
    return f"class _Array:\n{''.join(lines)}{METHODS.lstrip(chr(10))}\n"


def _aliases() -> str:
    return "".join(f"{alias} = builtins.{name}\n" for name, alias in PLAIN.items())


def _tuples() -> str:
    return "".join(
        f"\nclass {name}(NamedTuple):\n"
        + "".join(f"    {field}: _Array\n" for field in fields.split())
        for name, fields in TUPLES.items()
    )


def stubs(package: Path, note: str) -> dict[Path, str]:
    """Each stub's text by its path."""
    values = "".join(f"from numpy import {name} as {name}\n" for name in names.VALUES)
    extensions = "".join(
        f"from lazyfuse.array_api import {name} as {name}\n" for name in build.EXTENSIONS
    )
    published = ", ".join(f'"{name}"' for name in build.Names("", build.LATEST).public())
    main = (
        f"{note}{HEAD}{values}{extensions}\n{_aliases()}{TYPES}\n{_array()}{_tuples()}{INFO}\n"
        f"__all__ = [{published}]\n__array_api_version__: _Str\n\n{_functions(names.MAIN)}"
    )
    found = {package / "array_api" / "__init__.pyi": main}
    shared = "_Array, _Bool, _DType, _Float, _Int, _Number, " + ", ".join(TUPLES)
    for name in build.EXTENSIONS:
        published = ", ".join(f'"{each}"' for each in build.Names(name, build.LATEST).public())
        found[package / "array_api" / f"{name}.pyi"] = (
            f"{note}from collections.abc import Sequence\nfrom typing import Any, Literal\n\n"
            f"from lazyfuse.array_api import {shared}\n\n"
            f"__all__ = [{published}]\n\n{_functions(build._TABLES[name])}"
        )
    return found
