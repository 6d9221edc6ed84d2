"""The functions and names of texts of language "numba" (numba_runtime.py lists them).

Owns which call emits what, for both compilers: numba_runtime.py gives these functions to numba. A
function gets the walk over the text and the values of its arguments.
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


def _arguments(given: list[Value], count: int) -> list[Value]:
    if len(given) != count:
        raise Unsupported("[translate] a call with other arguments")
    return given


def _cast(kind: str) -> Function:
    def cast(walk: Any, given: list[Value]) -> Value:
        (value,) = _arguments(given, 1)
        return convert(walk.builder, value, kind)

    return cast


def _pointer(code: str) -> Function:
    def pointer(walk: Any, given: list[Value]) -> Value:
        (address,) = _arguments(given, 1)
        wide = convert(walk.builder, address, "i8")
        return Value("*" + code, (walk.builder.inttoptr(wide.ir, llvm_type("*" + code)),))

    return pointer


def _local(code: str) -> Function:
    def local(walk: Any, given: list[Value]) -> Value:
        (count,) = _arguments(given, 1)
        if not count.literal:
            raise Unsupported("[translate] an array of unknown length")
        kept = memory.local(walk.builder, element_type(code), int(count.literal))
        return Value("*" + code, (kept,))

    return local


def _scalar(code: str) -> Function:
    def scalar(walk: Any, given: list[Value]) -> Value:
        scalars, slot = _arguments(given, 2)
        wide = convert(walk.builder, slot, "i8")
        return Value(code, memory.scalar(walk.builder, scalars.ir, wide.ir, code))

    return scalar


def _vector_math(name: str, size: int) -> Function:
    kind = "f8" if size == 8 else "f4"

    def call(walk: Any, given: list[Value]) -> Value:
        args = [convert(walk.builder, each, kind).ir for each in given]
        _arguments(given, vector_math.ARITY[name])
        declared = vector_math.declare(walk.builder.module, name, size, walk.features)
        return Value(kind, (walk.builder.call(declared, args),))

    return call


def _pairwise(code: str) -> Function:
    def add(walk: Any, given: list[Value]) -> Value:
        pointer, count = _arguments(given, 2)
        wide = convert(walk.builder, count, "i8")
        return Value(code, pairwise.emit(walk.builder, code, pointer.ir, wide.ir))

    return add


def _compact(size: int) -> Function:
    def kept(walk: Any, given: list[Value]) -> Value:
        args = [each.ir for each in _arguments(given, 5)[:3]]
        args += [convert(walk.builder, each, "i8").ir for each in given[3:]]
        return Value("i8", (compact.emit(walk.builder, size, walk.features, args),))

    return kept


def _read_bytes(walk: Any, given: list[Value]) -> None:
    args = [each.ir for each in _arguments(given, 4)]
    byte_table.emit(walk.builder, walk.features, args)


def _stream(walk: Any, given: list[Value]) -> None:
    address, pointer, count = _arguments(given, 3)
    wide = [convert(walk.builder, each, "i8").ir for each in (address, count)]
    streaming_store.emit(walk.builder, wide[0], pointer.ir, wide[1])


def _statement(emit: Callable[[Any], None]) -> Function:
    def run(walk: Any, given: list[Value]) -> None:
        _arguments(given, 0)
        emit(walk.builder)

    return run


def _loop_mark(mark: Callable[[Any], None]) -> Function:
    """A mark of a loop, which helper functions have not."""

    def run(walk: Any, given: list[Value]) -> None:
        _arguments(given, 0)
        if not walk.depth:
            mark(walk)

    return run


def _side_by_side(count: int) -> Function:
    return _loop_mark(lambda walk: loop_metadata.side_by_side(count, walk.features, walk.builder))


def _test_flags(walk: Any, given: list[Value]) -> Value:
    _arguments(given, 0)
    return Value("i4", (ieee_flags.test(walk.builder),))


def _select(walk: Any, given: list[Value]) -> Value:
    condition, first, second = _arguments(given, 3)
    chosen = truth(walk.builder, condition).ir
    other = convert(walk.builder, second, first.kind)
    pairs = zip(first.parts, other.parts, strict=True)
    return Value(first.kind, tuple([walk.builder.select(chosen, *pair) for pair in pairs]))


def _shifted(walk: Any, given: list[Value]) -> Value:
    pointer, count = _arguments(given, 2)
    wide = convert(walk.builder, count, "i8")
    return Value("*" + pointer.target, (walk.builder.gep(pointer.ir, [wide.ir]),))


def _least(sign: str) -> Function:
    return lambda walk, given: arithmetic.least(walk.builder, given, sign)


def _of_one(name: str) -> Function:
    def call(walk: Any, given: list[Value]) -> Value:
        (value,) = _arguments(given, 1)
        return arithmetic.rounded(walk.builder, name, value)

    return call


def _of_two(name: str) -> Function:
    def call(walk: Any, given: list[Value]) -> Value:
        return arithmetic.of_two_floats(walk.builder, name, *_arguments(given, 2))

    return call


def _abs(walk: Any, given: list[Value]) -> Value:
    return arithmetic.magnitude(walk.builder, *_arguments(given, 1))


def _complex(walk: Any, given: list[Value]) -> Value:
    return arithmetic.made_complex(walk.builder, *_arguments(given, 2))


OWN: dict[str, Function] = {
    "select": _select,
    "shifted": _shifted,
    "read_bytes": _read_bytes,
    "stream": _stream,
    "fence_streaming_stores": _statement(streaming_store.emit_fence),
    "clear_flags": _statement(ieee_flags.clear),
    "test_flags": _test_flags,
    "independent": _loop_mark(lambda walk: loop_metadata.mark(walk.builder)),
    "independent_2": _side_by_side(2),
    "independent_4": _side_by_side(4),
    "one_vector": _loop_mark(lambda walk: loop_metadata.mark(walk.builder, 8)),
}
"""The functions that numba_runtime.py adds to numba's."""
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

FUNCTIONS = (
    OWN
    | loop_functions.FUNCTIONS
    | {"abs": _abs, "complex": _complex, "max": _least(">"), "min": _least("<")}
)
for _name, _code in kinds.NAMES.items():
    FUNCTIONS[_name] = FUNCTIONS[f"np.{_name}"] = _cast(_code)
for _name in arithmetic.ROUNDING:
    FUNCTIONS[f"np.{_name}"] = _of_one(_name)
for _name in ("fmod", "copysign"):
    FUNCTIONS[f"np.{_name}"] = _of_two(_name)
