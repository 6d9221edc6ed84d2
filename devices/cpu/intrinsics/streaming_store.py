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

    def one(at: Any) -> None:
        build.store(build.load(build.gep(source, [at]), align=1), build.gep(target, [at]), align=1)

    def whole(at: Any) -> None:
        place = build.bitcast(build.gep(source, [at]), line.as_pointer())
        written = build.bitcast(build.gep(target, [at]), line.as_pointer())
        store = build.store(build.load(place, align=1), written, align=LINE)
        store.set_metadata("nontemporal", past)

    for first, last, step, body in (
        (int64(0), head, 1, one),
        (head, build.add(head, lines), LINE, whole),
        (build.add(head, lines), count, 1, one),
    ):
        _loop(ir, build, (first, last, step), body)
    build.ret_void()
    return function


def _loop(ir: Any, build: Any, over: tuple[Any, Any, int], body: Any) -> None:
    first, last, step = over
    function, before = build.function, build.block
    test, inner, after = (function.append_basic_block() for _ in range(3))
    build.branch(test)
    build.position_at_end(test)
    at = build.phi(ir.IntType(64))
    at.add_incoming(first, before)
    build.cbranch(build.icmp_signed("<", at, last), inner, after)
    build.position_at_end(inner)
    body(at)
    at.add_incoming(build.add(at, ir.IntType(64)(step)), build.block)
    build.branch(test)
    build.position_at_end(after)
