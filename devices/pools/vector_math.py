"""Mathematical functions of generated text: libmvec's SIMD versions, or the C library's scalars.

Owns the list of functions, the choice of vector width, and the LLVM declarations that let the loop
vectoriser find a SIMD version; and the floating-point flags of the C library.

Where libmvec serves a function, *every* call goes to one SIMD version: the vectorised loop calls it
on full vectors, and a scalar call (loop remainders, loops that did not vectorise) calls it on a
vector of copies. So a result depends on the argument alone, never on its position in the array, on
chunks or on the vectoriser. The scalar versions are `lf_NAME` (f8) and `lf_NAMEf` (f4): defined in
each object file where libmvec serves, else symbols given to the linker. LLVM must not know their
names, or it would turn them into intrinsics that do not vectorise. For some functions the SIMD
version is our own text (own_math.py).
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from ..caches import CONSTANT, cached
from ..late_imports import module as heavy
from . import own_math

_ONE = (
    "acos asin asinh atan cbrt cos cosh erf erfc exp exp10 exp2 expm1 "
    "log log10 log1p log2 sin sinh tan tanh"
)
ARITY = dict.fromkeys(_ONE.split(), 1) | {"atan2": 2, "hypot": 2, "pow": 2}

LIBMVEC = "libmvec.so.1"
# CPU feature -> (letter of the vector ABI, bytes per vector), best first.
_VARIANTS = (("+avx512f", "e", 64), ("+avx2", "d", 32), ("+sse4.1", "b", 16))
_USED = "llvm.compiler.used"


def machine() -> str:
    """The kind of CPU, as `platform.machine()`, whose import takes longer than all of ours."""
    if sys.platform == "win32":
        return os.environ.get("PROCESSOR_ARCHITECTURE", "")
    return os.uname().machine


@cached(1, CONSTANT, clears=False)
def libmvec() -> Any:
    """The SIMD library, or None without one (macOS, Windows, other C libraries)."""
    if sys.platform != "linux" or machine() != "x86_64":
        return None
    try:
        return ctypes.CDLL(LIBMVEC)
    except OSError:
        return None


@cached(1, CONSTANT, clears=False)
def libm() -> Any:
    """The C library's mathematical functions."""
    names = {"win32": "ucrtbase", "darwin": "libSystem.dylib"}
    return ctypes.CDLL(names.get(sys.platform, "libm.so.6"))


@cached(1, CONSTANT, clears=False)
def symbols() -> dict[str, int]:
    """Symbols for generated code: the C library's scalar functions, and those of fenv."""
    found: dict[str, int] = {}
    library = libm()
    for name in ARITY:
        for size, suffix in ((8, ""), (4, "f")):
            if hasattr(library, name + suffix):
                found[scalar_name(name, size)] = address(library, name + suffix)
    for name in ("feclearexcept", "fetestexcept"):
        if hasattr(library, name):
            found["lf_" + name] = address(library, name)
    return found


def address(library: Any, name: str) -> int:
    """Where a function of a library lies; `AttributeError` if it has none of this name."""
    found = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert found is not None
    return found


# Flags of the C library's fenv.h, in the order invalid, divide by zero, overflow, underflow.
_FENV_FLAGS = {"x86_64": (1, 4, 8, 16), "aarch64": (1, 2, 4, 8), "arm64": (1, 2, 4, 8)}


def fenv_flags() -> tuple[int, int, int, int] | None:
    """The platform's flag bits (invalid, divide, over, under); None if they are unknown."""
    return None if sys.platform == "win32" else _FENV_FLAGS.get(machine())


def scalar_name(name: str, size: int) -> str:
    """`lf_exp` for doubles (size 8), `lf_expf` for floats (size 4)."""
    return f"lf_{name}" if size == 8 else f"lf_{name}f"


def converts_wide(features: str) -> bool:
    """Whether a CPU with these features turns vectors of int64 into float64 and back."""
    return "+avx512dq" in features.split(",")


def vector_bytes(features: str) -> int:
    """Bytes of the vectors that SIMD versions take on a CPU with these features; 0: none."""
    return _variant(features)[1]


def _variant(features: str) -> tuple[str, int]:
    if libmvec() is not None:
        enabled = features.split(",")
        for feature, letter, width in _VARIANTS:
            if feature in enabled:
                return letter, width
    return "", 0


def vector_symbol(name: str, size: int, features: str) -> tuple[str, int]:
    """Symbol and lanes of the SIMD version for a CPU with these features; ("", 0): none."""
    letter, width = _variant(features)
    if not width:
        return "", 0
    if own_math.serves(name, size, features):
        return own_math.symbol(name), own_math.LANES
    lanes = width // size
    suffix = "" if size == 8 else "f"
    symbol = f"_ZGV{letter}N{lanes}{'v' * ARITY[name]}_{name}{suffix}"
    return (symbol, lanes) if hasattr(libmvec(), symbol) else ("", 0)


def declare(module: Any, name: str, size: int, features: str) -> Any:
    """Declare or define `lf_NAME` in an llvmlite module, so that loops that call it vectorise."""
    symbol = scalar_name(name, size)
    known = module.globals.get(symbol)
    if known is not None:
        return known
    ir = heavy("llvmlite.ir")
    element = ir.DoubleType() if size == 8 else ir.FloatType()
    function = ir.Function(module, ir.FunctionType(element, [element] * ARITY[name]), symbol)
    _set_pure(function)
    vector, lanes = vector_symbol(name, size, features)
    if lanes:
        _define_by_vector(ir, function, vector, lanes)
    return function


def _set_pure(function: Any) -> None:
    for text in ("nounwind", "willreturn", "memory(none)"):
        set.add(function.attributes, text)  # llvmlite's own add() knows only a fixed list


def _define_by_vector(ir: Any, function: Any, symbol: str, lanes: int) -> None:
    """Give `lf_NAME` a body (one lane of the SIMD version) and declare its vector versions.

    Loops that mix f4 and f8 process as many f4 as f8 at a time, half a vector of f4: for these a
    function fills the other half with copies.
    """
    module, arity = function.module, len(function.args)
    element = function.type.pointee.return_type
    full = ir.VectorType(element, lanes)
    name = function.name.removeprefix("lf_")
    if symbol == own_math.symbol(name):
        callee = own_math.define(module, name)
    else:
        callee = ir.Function(module, ir.FunctionType(full, [full] * arity), symbol)
    one = ir.VectorType(element, 1)
    builder = _define(ir, function)
    first = ir.Constant(ir.IntType(32), 0)
    single = [
        builder.insert_element(ir.Constant(one, ir.Undefined), argument, first)
        for argument in function.args
    ]
    builder.ret(builder.extract_element(_call_widened(ir, builder, callee, single, 1), first))
    versions = {lanes: callee}
    if isinstance(element, ir.FloatType):
        half = ir.VectorType(element, lanes // 2)
        kind = ir.FunctionType(half, [half] * arity)
        versions[lanes // 2] = ir.Function(module, kind, f"{function.name}_{lanes // 2}")
        _set_pure(versions[lanes // 2])
        builder = _define(ir, versions[lanes // 2])
        arguments = versions[lanes // 2].args
        builder.ret(_call_widened(ir, builder, callee, arguments, lanes // 2))
    mapping = ",".join(
        f"_ZGV_LLVM_N{count}{'v' * arity}_{function.name}({version.name})"
        for count, version in versions.items()
    )
    set.add(function.attributes, f'"vector-function-abi-variant"="{mapping}"')
    _keep(ir, module, list(versions.values()))


def _define(ir: Any, function: Any) -> Any:
    """Begin the body of a function that several linked modules may define."""
    set.add(function.attributes, "noinline")  # the vectoriser must still see a call of this name
    function.linkage = "linkonce_odr"
    return ir.IRBuilder(function.append_basic_block("entry"))


def _call_widened(ir: Any, builder: Any, callee: Any, vectors: Any, lanes: int) -> Any:
    """`callee` on short vectors repeated to its width; the first `lanes` lanes of its result."""
    width = callee.type.pointee.return_type.count
    repeat = _mask(ir, [lane % lanes for lane in range(width)])
    wide = [builder.shuffle_vector(each, each, repeat) for each in vectors]
    result = builder.call(callee, wide)
    return builder.shuffle_vector(result, result, _mask(ir, list(range(lanes))))


def _mask(ir: Any, lanes: list[int]) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)


def _keep(ir: Any, module: Any, functions: list[Any]) -> None:
    """Add to `llvm.compiler.used`: before it vectorises, LLVM drops functions without callers."""
    if _USED in module.globals:
        functions = [*module.globals.pop(_USED).lazyfuse_kept, *functions]
        module.scope._useset.discard(_USED)
    pointer = ir.IntType(8).as_pointer()
    array = ir.ArrayType(pointer, len(functions))
    used = ir.GlobalVariable(module, array, _USED)
    used.linkage, used.section, used.lazyfuse_kept = "appending", "llvm.metadata", functions
    used.initializer = ir.Constant(array, [each.bitcast(pointer) for each in functions])
