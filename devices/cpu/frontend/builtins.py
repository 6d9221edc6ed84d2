"""The functions and names of texts of language "numba".

Owns which call emits what: a function gets the walk over the text and the values of its arguments.

- `pointer_f8(address)` ... one per dtype: int64 -> typed pointer `p`; `p[i]` loads, `p[i] = v`
  stores (`b1` is read and written as uint8). No alignment is assumed.
- `select(condition, a, b)`: a where the condition holds, else b; both are computed.
- `largest(a, b)`, `smallest(a, b)` of floats of one type: NaN where one is NaN; -0.0 is below 0.0.
- `shifted(pointer, k)`: the pointer to element k.
- `local_f8(32)` ...: a private array of a literal length on the stack, uninitialised.
- `scalar_f8(scalars, k)` ...: slot k of the scalars (16 bytes each), as a value of that dtype.
- `vm_NAME` (f8), `vmf_NAME` (f4): the functions listed in vector_math.py. Same argument, same bits,
  wherever it stands in an array.
- `pairwise_f8(pointer, count)`, `_f4`, `_c8`, `_c16`: the sum of contiguous elements in NumPy's
  order.
- `compact_8(out, data, mask, count, room)`, `_1`, `_2`, `_4`, `_16`: the elements (of 8, 1, 2, 4,
  16 bytes) that a mask of bytes keeps, see compact.py.
- `read_bytes(out, table, index, count)`: entries of a table of 256 bytes, see byte_table.py.
- `stream(address, pointer, bytes)`: copy from a `local_` buffer past caches (streaming_store.py);
  `fence_streaming_stores()` once before the end of a text that streams.
- `independent()` as a statement in a loop's body: no iteration of the innermost loop around it
  reads or writes through a pointer what another iteration writes. Such a loop vectorises with any
  number of pointers and without run-time checks. Within an iteration the order of loads and stores
  is kept, so an output may be the same memory as an input *of the same layout*; load every input
  into a variable before the first store. Not for loops that accumulate in memory. Ignored in
  helper functions. `independent_2()`, `independent_4()`: 2 or 4 iterations side by side (fewer
  where vectors have 16 registers).
- `one_vector()`: the same for a loop of eight iterations, which become one vector.
- `clear_flags()`, `test_flags()`: the IEEE flags of this thread (1 divide, 2 over, 4 under,
  8 invalid). They may include exceptions that NumPy would not report: a comparison with NaN, both
  arms of a select, infinite or huge arguments of exp, pow, sin, cos. Only "under" may be missing.
- `kept(x)`: the float64 x, behind LLVM's back: it turns no arithmetic with it into a constant,
  which would raise no flags.
- `CONVERTS_WIDE`: whether this machine turns vectors of int64 into vectors of float64 and back.
- Functions before the entry (`@njit`) are helpers, expanded where they are called. Names of types
  (`int8` ... `uint64`, `float32`, `float64`, `complex64`, `complex128`, `boolean`) are casts, as in
  numba; `abs`, `min`, `max`, `complex` and some functions of `np` are what Python and NumPy have.

Floating-point arithmetic is as written: no contraction, no reassociation, NumPy's error model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...pools import vector_math
from ..intrinsics import (
    byte_table,
    compact,
    ieee_flags,
    loop_metadata,
    memory,
    pairwise,
    streaming_store,
)
from . import arithmetic, kinds, loop_functions
from .kinds import Unsupported
from .values import Value, convert, element_type, llvm_type, truth

Function = Callable[[Any, list[Value]], "Value | None"]

NUMBERS = {"np.inf": math.inf, "np.nan": math.nan, "np.pi": math.pi, "math.pi": math.pi}


def _taking(emit: Callable[..., Value | None]) -> Function:
    """The function that emits `emit(walk, *arguments)`, with as many arguments as it names."""
    count = emit.__code__.co_argcount - 1

    def call(walk: Any, given: list[Value]) -> Value | None:
        if len(given) != count:
            raise Unsupported("[translate] a call with other arguments")
        return emit(walk, *given)

    return call


def _cast(kind: str) -> Function:
    return _taking(lambda walk, value: convert(walk.builder, value, kind))


def _pointer(code: str) -> Function:
    code = "u1" if code == "b1" else code  # truth values lie in memory as bytes

    @_taking
    def pointer(walk: Any, address: Value) -> Value:
        wide = convert(walk.builder, address, "i8")
        return Value("*" + code, (walk.builder.inttoptr(wide.ir, llvm_type("*" + code)),))

    return pointer


def _local(code: str) -> Function:
    code = "u1" if code == "b1" else code

    @_taking
    def local(walk: Any, count: Value) -> Value:
        if not count.literal:
            raise Unsupported("[translate] an array of unknown length")
        kept = memory.local(walk.builder, element_type(code), int(count.literal))
        return Value("*" + code, (kept,))

    return local


def _scalar(code: str) -> Function:
    @_taking
    def scalar(walk: Any, scalars: Value, slot: Value) -> Value:
        wide = convert(walk.builder, slot, "i8")
        return Value(code, memory.scalar(walk.builder, scalars.ir, wide.ir, code))

    return scalar


def _vector_math(name: str, size: int) -> Function:
    kind = "f8" if size == 8 else "f4"

    def call(walk: Any, given: list[Value]) -> Value:
        args = [convert(walk.builder, each, kind).ir for each in given]
        if len(args) != vector_math.ARITY[name]:
            raise Unsupported("[translate] a call with other arguments")
        declared = vector_math.declare(walk.builder.module, name, size, walk.features)
        return Value(kind, (walk.builder.call(declared, args),))

    return call


def _pairwise(code: str) -> Function:
    @_taking
    def add(walk: Any, pointer: Value, count: Value) -> Value:
        wide = convert(walk.builder, count, "i8")
        return Value(code, pairwise.emit(walk.builder, code, pointer.ir, wide.ir))

    return add


def _compact(size: int) -> Function:
    @_taking
    def kept(walk: Any, out: Value, data: Value, mask: Value, count: Value, room: Value) -> Value:
        args = [out.ir, data.ir, mask.ir]
        args += [convert(walk.builder, each, "i8").ir for each in (count, room)]
        return Value("i8", (compact.emit(walk.builder, size, walk.features, args),))

    return kept


@_taking
def _read_bytes(walk: Any, out: Value, table: Value, index: Value, count: Value) -> None:
    byte_table.emit(walk.builder, walk.features, [out.ir, table.ir, index.ir, count.ir])


@_taking
def _stream(walk: Any, address: Value, pointer: Value, count: Value) -> None:
    wide = [convert(walk.builder, each, "i8").ir for each in (address, count)]
    streaming_store.emit(walk.builder, wide[0], pointer.ir, wide[1])


def _loop_mark(mark: Callable[[Any, str], None]) -> Function:
    """A mark of the innermost loop, which helper functions have not."""

    @_taking
    def run(walk: Any) -> None:
        if walk.latches and not walk.depth:
            mark(walk.latches[-1], walk.features)

    return run


def _side_by_side(count: int) -> Function:
    return _loop_mark(lambda latch, features: loop_metadata.side_by_side(count, features, latch))


@_taking
def _select(walk: Any, condition: Value, first: Value, second: Value) -> Value:
    chosen = truth(walk.builder, condition).ir
    other = convert(walk.builder, second, first.kind)
    pairs = zip(first.parts, other.parts, strict=True)
    return Value(first.kind, tuple([walk.builder.select(chosen, *pair) for pair in pairs]))


def _extreme(name: str) -> Function:
    return _taking(lambda walk, a, b: arithmetic.extreme(walk.builder, name, a, b))


@_taking
def _shifted(walk: Any, pointer: Value, count: Value) -> Value:
    wide = convert(walk.builder, count, "i8")
    return Value("*" + pointer.target, (walk.builder.gep(pointer.ir, [wide.ir]),))


def _least(sign: str) -> Function:
    return lambda walk, given: arithmetic.least(walk.builder, given, sign)


def _of_one(name: str) -> Function:
    return _taking(lambda walk, value: arithmetic.rounded(walk.builder, name, value))


def _of_two(name: str) -> Function:
    return _taking(lambda walk, a, b: arithmetic.of_two_floats(walk.builder, name, a, b))


OWN: dict[str, Function] = {
    "select": _select,
    "largest": _extreme("maximum"),
    "smallest": _extreme("minimum"),
    "shifted": _shifted,
    "read_bytes": _read_bytes,
    "stream": _stream,
    "fence_streaming_stores": _taking(lambda walk: streaming_store.emit_fence(walk.builder)),
    "clear_flags": _taking(lambda walk: ieee_flags.clear(walk.builder)),
    "test_flags": _taking(lambda walk: Value("i4", (ieee_flags.test(walk.builder),))),
    "kept": _taking(
        lambda walk, x: Value(
            "f8", (ieee_flags.kept(walk.builder, convert(walk.builder, x, "f8").ir),)
        )
    ),
    "independent": _loop_mark(lambda latch, _: loop_metadata.mark(latch)),
    "independent_2": _side_by_side(2),
    "independent_4": _side_by_side(4),
    "one_vector": _loop_mark(lambda latch, _: loop_metadata.mark(latch, 8)),
}
"""The functions that numba does not have."""
for _code in kinds.CODES:
    OWN[f"pointer_{_code}"] = _pointer(_code)
    OWN[f"local_{_code}"] = _local(_code)
    OWN[f"scalar_{_code}"] = _scalar(_code)
for _code in pairwise.CODES:
    OWN[f"pairwise_{_code}"] = _pairwise(_code)
for _size in compact.SIZES:
    OWN[f"compact_{_size}"] = _compact(_size)
for _name in vector_math.ARITY:
    OWN[f"vm_{_name}"] = _vector_math(_name, 8)
    OWN[f"vmf_{_name}"] = _vector_math(_name, 4)

FUNCTIONS = OWN | loop_functions.FUNCTIONS | {"max": _least(">"), "min": _least("<")}
FUNCTIONS["abs"] = _taking(lambda walk, value: arithmetic.magnitude(walk.builder, value))
FUNCTIONS["complex"] = _taking(lambda walk, a, b: arithmetic.made_complex(walk.builder, a, b))
for _name, _code in kinds.NAMES.items():
    FUNCTIONS[_name] = FUNCTIONS[f"np.{_name}"] = _cast(_code)
for _name in arithmetic.ROUNDING:
    FUNCTIONS[f"np.{_name}"] = _of_one(_name)
for _name in ("fmod", "copysign"):
    FUNCTIONS[f"np.{_name}"] = _of_two(_name)
