"""Writing results past the caches: `stream(address, pointer, count)` of generated text.

A store into uncached memory first reads its line, and the lines of a result larger than
the last cache leave it before they are read. Whole lines written with non-temporal stores
save the read: a third of the traffic of an addition. Generated text computes a few hundred
elements into a buffer that stays in the first cache and passes it on. Importing it loads nothing
heavy.
"""

from __future__ import annotations

from typing import Any

from ...late_imports import module as heavy
from .loops import loop

LINE = 64  # bytes: a cache line, and one vector of AVX-512
_NAME = "lf_stream"


def emit(builder: Any, address: Any, source: Any, count: Any) -> None:
    """Call `stream` with LLVM values: copy `count` bytes from a buffer to disjoint memory."""
    byte = heavy("llvmlite.ir").IntType(8).as_pointer()
    function = builder.module.globals.get(_NAME) or _function(builder.module)
    target = builder.inttoptr(address, byte)
    builder.call(function, [target, builder.bitcast(source, byte), count])


def emit_fence(builder: Any) -> None:
    """`fence_streaming_stores()`: a thread that sees later writes also sees streamed ones."""
    builder.fence("seq_cst")


def _function(module: Any) -> Any:
    """Copy single bytes up to a line's start, then lines, then single bytes."""
    ir = heavy("llvmlite.ir")
    byte, int64 = ir.IntType(8), ir.IntType(64)
    pointer, line = byte.as_pointer(), ir.VectorType(int64, LINE // 8)
    kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, int64])
    function = ir.Function(module, kind, _NAME)
    function.linkage = "linkonce_odr"
    function.attributes.add("nounwind")
    function.attributes.add("noinline")
    target, source, count = function.args
    for each in (target, source):
        each.add_attribute("noalias")
    build = ir.IRBuilder(function.append_basic_block("entry"))
    rest = build.and_(build.neg(build.ptrtoint(target, int64)), int64(LINE - 1))
    head = build.select(build.icmp_unsigned("<", rest, count), rest, count)
    lines = build.and_(build.sub(count, head), int64(-LINE))
    past = module.add_metadata([ir.IntType(32)(1)])

    def one(at: Any, _: Any) -> tuple[()]:
        build.store(build.load(build.gep(source, [at]), align=1), build.gep(target, [at]), align=1)
        return ()

    def whole(at: Any, _: Any) -> tuple[()]:
        place = build.bitcast(build.gep(source, [at]), line.as_pointer())
        written = build.bitcast(build.gep(target, [at]), line.as_pointer())
        store = build.store(build.load(place, align=1), written, align=LINE)
        store.set_metadata("nontemporal", past)
        return ()

    loop(build, (int64(0), head, 1), (), one)
    last = build.add(head, lines)
    loop(build, (head, last, LINE), (), whole)
    loop(build, (last, count, 1), (), one)
    build.ret_void()
    return function
