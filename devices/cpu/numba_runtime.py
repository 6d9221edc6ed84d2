"""The names that generated text of language "numba" may use. Owns their meaning; launches nothing.

Importing this module loads nothing heavy; `namespace()` loads numba.

- `pointer_f8(address)` ... one per dtype: int64 -> typed pointer `p`; `p[i]` loads, `p[i] = v`
  stores (`b1` is read and written as uint8). No alignment is assumed.
- `select(condition, a, b)`: a where the condition holds, else b; both are computed.
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
- `one_vector()`: the same for a loop of eight iterations, which become one vector.
- `independent()` as a statement in a loop's body: no iteration of the innermost loop around it
  reads or writes through a pointer what another iteration writes. Such a loop vectorises with any
  number of pointers and without run-time checks. Within an iteration the order of loads and stores
  is kept, so an output may be the same memory as an input *of the same layout*; load every input
  into a variable before the first store. Not for loops that accumulate in memory. Ignored in
  helper functions. `independent_2()`, `independent_4()`: 2 or 4 iterations side by side (fewer
  where vectors have 16 registers).
- `clear_flags()`, `test_flags()`: the IEEE flags of this thread (1 divide, 2 over, 4 under,
  8 invalid). They may include exceptions that NumPy would not report: a comparison with NaN, both
  arms of a select, infinite or huge arguments of exp, pow, sin, cos. Only "under" may be missing.
- `CONVERTS_WIDE`: whether this machine turns vectors of int64 into vectors of float64 and back.
- `njit`: for helper functions, compiled once per process and inlined by LLVM; numba's types
  (`int8` ... `uint64`, `float32`, `float64`, `complex64`, `complex128`, `boolean`) as casts; `np`
  and `math`.

Floating-point arithmetic is as written: no contraction, no reassociation, NumPy's error model.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..caches import CONSTANT, DTYPES, cached
from ..late_imports import module as heavy
from ..pools import vector_math
from .intrinsics import (
    byte_table,
    compact,
    ieee_flags,
    loop_metadata,
    memory,
    pairwise,
    streaming_store,
)

# dtype -> name of numba's type
NUMBA_TYPES = {
    "b1": "boolean",
    "i1": "int8",
    "i2": "int16",
    "i4": "int32",
    "i8": "int64",
    "u1": "uint8",
    "u2": "uint16",
    "u4": "uint32",
    "u8": "uint64",
    "f4": "float32",
    "f8": "float64",
    "c8": "complex64",
    "c16": "complex128",
}


@cached(1, CONSTANT, clears=False)
def namespace() -> dict[str, Any]:
    """All names of the module's docstring; the globals of each program are a copy."""
    types = heavy("numba.core.types")
    names: dict[str, Any] = {"np": np, "math": math, "njit": _helpers()}
    for code, type_name in NUMBA_TYPES.items():
        names[type_name] = getattr(types, type_name)
        names[f"pointer_{code}"] = _pointer(code)
        names[f"local_{code}"] = _local(code)
        names[f"scalar_{code}"] = _scalar(code)
    features = target_features()
    for name, arity in vector_math.ARITY.items():
        names[f"vm_{name}"] = _vector_math(name, arity, 8, features)
        names[f"vmf_{name}"] = _vector_math(name, arity, 4, features)
    for code in pairwise.CODES:
        names[f"pairwise_{code}"] = pairwise.intrinsic(code)
    for size in compact.SIZES:
        names[f"compact_{size}"] = compact.intrinsic(size, features)
    names["read_bytes"] = byte_table.intrinsic(features)
    names["stream"] = streaming_store.intrinsic()
    names["fence_streaming_stores"] = streaming_store.fence()
    names["select"] = _intrinsic(_select)
    names["shifted"] = _intrinsic(_shifted)
    names["CONVERTS_WIDE"] = vector_math.converts_wide(features)
    names["independent"] = _statement(lambda builder: loop_metadata.mark(builder))
    for count in (2, 4):
        names[f"independent_{count}"] = _statement(
            partial(loop_metadata.side_by_side, count, features)
        )
    names["one_vector"] = _statement(lambda builder: loop_metadata.mark(builder, 8))
    names["clear_flags"] = _statement(ieee_flags.clear)
    names["test_flags"] = _test_flags()
    return names


@cached(1, CONSTANT, clears=False)
def target_features() -> str:
    """The CPU features that numba compiles for, in LLVM's spelling."""
    return str(heavy("numba.core.registry").cpu_target.target_context.codegen()._tm_features)


def _intrinsic(function: Any, **options: Any) -> Any:
    extending = heavy("numba.core.extending")
    return extending.intrinsic(**options)(function) if options else extending.intrinsic(function)


def _helpers() -> Any:
    """`njit` for helper functions. Programs with the same text share the helper."""
    dispatcher = heavy("numba.core.registry").CPUDispatcher
    known: dict[Any, Any] = {}

    def njit(function: Any) -> Any:
        code = function.__code__
        others = tuple(id(function.__globals__.get(name)) for name in code.co_names)
        key = (code.co_name, code.co_code, code.co_consts, code.co_names, others)
        if key not in known:
            options = {"nopython": True, "error_model": "numpy", "nogil": True}
            # Python never calls it: its wrappers took a quarter of the time
            options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
            known[key] = dispatcher(function, targetoptions=options)
        return known[key]

    return njit


@cached(why=DTYPES, clears=False)
def _pointer_type(code: str) -> Any:
    types = heavy("numba.core.types")
    return _pointer_class()(types.uint8 if code == "b1" else getattr(types, NUMBA_TYPES[code]))


@cached(1, CONSTANT, clears=False)
def _pointer_class() -> Any:
    """A pointer type whose loads and stores are in the access group of independent loops."""
    types, extending = heavy("numba.core.types"), heavy("numba.extending")

    class LoopPointer(types.CPointer):  # type: ignore[misc, name-defined]
        """A numba CPointer, whose templates type its indexing."""

        def __init__(self, dtype: Any) -> None:
            super().__init__(dtype)
            self.name = f"LoopPointer({dtype})"

    def load(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.gep(args[0], [args[1]])
        result = signature.return_type
        is_complex = isinstance(result, types.Complex)
        return _packed(context, builder, result, memory.load(builder, place, is_complex))

    def store(context: Any, builder: Any, signature: Any, args: Any) -> None:
        value: tuple[Any, ...] = (args[2],)
        if isinstance(signature.args[2], types.Complex):
            value = builder.extract_value(args[2], 0), builder.extract_value(args[2], 1)
        memory.store(builder, builder.gep(args[0], [args[1]]), value)

    extending.register_model(LoopPointer)(extending.models.PointerModel)
    integer = types.Integer
    extending.lower_builtin(operator.getitem, LoopPointer, integer)(load)
    extending.lower_builtin(operator.setitem, LoopPointer, integer, types.Any)(store)
    return LoopPointer


def _pointer(code: str) -> Any:
    int64, pointer_type = heavy("numba.core.types").int64, _pointer_type(code)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(pointer_type))

    def pointer(typing_context: Any, address: Any) -> Any:
        return pointer_type(int64), build

    return _intrinsic(pointer)


def _select(typing_context: Any, condition: Any, first: Any, second: Any) -> Any:
    types = heavy("numba.core.types")

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        condition, *arms = args
        if not isinstance(signature.return_type, types.Complex):
            return builder.select(condition, *arms)
        made = context.make_complex(builder, signature.return_type)  # vectors hold no pairs
        for k, part in enumerate(("real", "imag")):
            halves = [builder.extract_value(arm, k) for arm in arms]
            setattr(made, part, builder.select(condition, *halves))
        return made._getvalue()

    return first(types.boolean, first, first), build


def _shifted(typing_context: Any, pointer: Any, count: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, heavy("numba.core.types").int64), build


def _local(code: str) -> Any:
    types = heavy("numba.core.types")
    pointer_type = _pointer_type(code)

    def local(typing_context: Any, count: Any) -> Any:
        if not isinstance(count, types.IntegerLiteral):
            return None  # numba then reports that no such call exists

        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            element = context.get_data_type(pointer_type.dtype)
            return memory.local(builder, element, count.literal_value)

        return pointer_type(count), build

    return _intrinsic(local, prefer_literal=True)


def _scalar(code: str) -> Any:
    types = heavy("numba.core.types")
    result = getattr(types, NUMBA_TYPES[code])

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scalars, slot = args
        return _packed(context, builder, result, memory.scalar(builder, scalars, slot, code))

    def scalar(typing_context: Any, scalars: Any, k: Any) -> Any:
        return result(scalars, types.int64), build

    return _intrinsic(scalar)


def _packed(context: Any, builder: Any, kind: Any, parts: Sequence[Any]) -> Any:
    """One of numba's values: two parts are a complex number."""
    if len(parts) == 1:
        return parts[0]
    made = context.make_complex(builder, kind)
    made.real, made.imag = parts
    return made._getvalue()


def _vector_math(name: str, arity: int, size: int, features: str) -> Any:
    types = heavy("numba.core.types")
    element = types.float64 if size == 8 else types.float32

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(vector_math.declare(builder.module, name, size, features), args)

    def of_one(typing_context: Any, x: Any) -> Any:
        return element(element), build

    def of_two(typing_context: Any, x: Any, y: Any) -> Any:
        return element(element, element), build

    return _intrinsic(of_one if arity == 1 else of_two)


def _statement(emit: Any) -> Any:
    """A call without arguments or value that runs `emit(builder)`."""
    none = heavy("numba.core.types").none

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit(builder)
        return context.get_dummy_value()

    def statement(typing_context: Any) -> Any:
        return none(), build

    return _intrinsic(statement)


def _test_flags() -> Any:
    types = heavy("numba.core.types")

    def test_flags(typing_context: Any) -> Any:
        return types.int32(), lambda context, builder, signature, args: ieee_flags.test(builder)

    return _intrinsic(test_flags)
