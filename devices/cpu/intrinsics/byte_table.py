"""Reads from a table of 256 bytes by indices of one byte, as an LLVM function.

Owns `read_bytes` of generated text (builtins.py lists it). Where the machine permutes bytes of two
registers by a third (AVX-512 VBMI), the table is four registers and 64 reads are two permutations;
elsewhere each index is a load. Importing it loads nothing heavy.
"""

from __future__ import annotations

from typing import Any

from ...late_imports import module as heavy
from .loops import loop

ENTRIES = 256
_LANES = 64
_NAME = "lf_read_bytes"


def emit(builder: Any, features: str, args: Any) -> None:
    """Call `read_bytes(out, table, index, count)` with LLVM values: `out[k] = table[index[k]]`."""
    wide = "+avx512vbmi" in features.split(",")
    function = builder.module.globals.get(_NAME) or _function(builder.module, wide)
    kinds = function.type.pointee.args[:3]
    given = [builder.bitcast(each, kind) for each, kind in zip(args[:3], kinds, strict=True)]
    builder.call(function, [*given, args[3]])


def _function(module: Any, wide: bool) -> Any:
    ir = heavy("llvmlite.ir")
    byte, int64 = ir.IntType(8), ir.IntType(64)
    pointer = byte.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, pointer, int64])
    function = ir.Function(module, kind, _NAME)
    function.linkage = "linkonce_odr"
    function.attributes.add("nounwind")
    for each in function.args[:3]:
        each.add_attribute("noalias")
    out, table, index, count = function.args
    build = ir.IRBuilder(function.append_basic_block("entry"))
    vector = ir.VectorType(byte, _LANES)

    def at(memory: Any, place: Any) -> Any:
        return build.bitcast(build.gep(memory, [place]), vector.as_pointer())

    def many(place: Any, _: Any) -> tuple[()]:
        chosen = build.load(at(index, place), align=1)
        low, high = (build.call(permute, [a, chosen, b]) for a, b in (parts[:2], parts[2:]))
        upper = build.icmp_signed("<", chosen, ir.Constant(vector, None))
        build.store(build.select(upper, high, low), at(out, place), align=1)
        return ()

    def one(place: Any, _: Any) -> tuple[()]:
        chosen = build.zext(build.load(build.gep(index, [place])), int64)
        build.store(build.load(build.gep(table, [chosen])), build.gep(out, [place]))
        return ()

    whole = int64(0)
    if wide:
        name = "llvm.x86.avx512.vpermi2var.qi.512"
        three = ir.FunctionType(vector, [vector, vector, vector])
        permute = module.globals.get(name) or ir.Function(module, three, name)
        parts = [
            build.load(at(table, int64(first)), align=1) for first in range(0, ENTRIES, _LANES)
        ]
        whole = build.and_(count, int64(-_LANES))
        loop(build, (int64(0), whole, _LANES), (), many)
    loop(build, (whole, count, 1), (), one)
    build.ret_void()
    return function
