"""The IEEE flags of a thread, read and cleared by generated text.

Owns `clear_flags()`, `test_flags()` and `kept(x)` (builtins.py lists them). Importing it loads
nothing heavy.
"""

from __future__ import annotations

from typing import Any

from ...late_imports import module as heavy
from ...pools import vector_math


def clear(builder: Any) -> None:
    """Clear the flags."""
    masks = vector_math.fenv_flags()
    if masks is None:
        return
    if not _has_mxcsr():
        _call_fenv(builder, "lf_feclearexcept", sum(masks))
        return
    int32 = heavy("llvmlite.ir").IntType(32)
    word = _word(builder)
    _control_word(builder, "stmxcsr", word)
    before = builder.load(word)
    raised = builder.icmp_unsigned("!=", builder.and_(before, int32(sum(masks))), int32(0))
    with builder.if_then(raised):  # writing the register waits for all pending instructions
        builder.store(builder.and_(before, int32(~sum(masks))), word)
        _control_word(builder, "ldmxcsr", word)


def test(builder: Any) -> Any:
    """The flags as an int32: 1 divide, 2 over, 4 under, 8 invalid."""
    masks = vector_math.fenv_flags()
    int32 = heavy("llvmlite.ir").IntType(32)
    result = int32(0)
    if masks is None:
        return result
    if _has_mxcsr():
        word = _word(builder)
        _control_word(builder, "stmxcsr", word)
        raised = builder.load(word)
    else:
        raised = _call_fenv(builder, "lf_fetestexcept", sum(masks))
    for mask, ours in zip(masks, (8, 1, 2, 4), strict=True):
        is_set = builder.icmp_unsigned("!=", builder.and_(raised, int32(mask)), int32(0))
        result = builder.or_(result, builder.select(is_set, int32(ours), int32(0)))
    return result


def kept(builder: Any, number: Any) -> Any:
    """A float64 that LLVM knows nothing of: what follows from it is computed, with its flags."""
    ir = heavy("llvmlite.ir")
    bits = ir.IntType(64)
    kind = ir.FunctionType(bits, [bits])
    found = builder.asm(kind, "", "=r,0", [builder.bitcast(number, bits)], side_effect=True)
    return builder.bitcast(found, ir.DoubleType())


def _call_fenv(builder: Any, name: str, mask: int) -> Any:
    ir = heavy("llvmlite.ir")
    int32 = ir.IntType(32)
    kind = ir.FunctionType(int32, [int32])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, [int32(mask)])


def _has_mxcsr() -> bool:
    """Whether one register holds all flags, which is cheaper to read than through the C library."""
    return vector_math.machine() in ("x86_64", "AMD64")


def _control_word(builder: Any, name: str, place: Any) -> None:
    """`stmxcsr` or `ldmxcsr` with a word in memory."""
    ir = heavy("llvmlite.ir")
    pointer = ir.IntType(8).as_pointer()
    intrinsic = f"llvm.x86.sse.{name}"
    kind, module = ir.FunctionType(ir.VoidType(), [pointer]), builder.module
    function = module.globals.get(intrinsic) or ir.Function(module, kind, intrinsic)
    builder.call(function, [builder.bitcast(place, pointer)])


def _word(builder: Any) -> Any:
    with builder.goto_entry_block():
        return builder.alloca(heavy("llvmlite.ir").IntType(32))
